-- Closes a session, which deletes its nodes.
--
-- ARGV: session
-- Returns whether nodes of sessions that have ended are left. The client then calls it again.

sweep()
if call('ZSCORE', SESSIONS, ARGV[1]) then
  end_session(ARGV[1])
  purge()
end
save_clock()
return call('EXISTS', ENDED)
