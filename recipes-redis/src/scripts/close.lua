-- Closes a session, which deletes its nodes.
--
-- ARGV: session with the number of the connection
-- Returns whether nodes of sessions that have ended are left. The client then calls it again.

sweep()
if call('ZSCORE', SESSIONS, ARGV[1]) then
  local house = housekeeping()
  house.end_session(ARGV[1])
  house.purge()
end
local left = call('EXISTS', ENDED)
if left == 1 then clock.due = 0 end
save_clock()
return left
