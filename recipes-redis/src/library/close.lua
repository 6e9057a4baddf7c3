-- Closes a session, which deletes its nodes.
--
-- Arguments: session with the number of the connection
-- Returns whether nodes of sessions that have ended are left. The client then calls it again.
local function close(keys, args)
  begin(keys[1])
  local session = args[1]
  if call('ZSCORE', SESSIONS, session) then
    ask_first()
    end_session(session)
    purge()
  end
  local left = call('EXISTS', ENDED)
  if left == 1 then clock.due = 0 end
  save_clock()
  return left
end
