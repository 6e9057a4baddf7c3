-- Opens a session.
--
-- Arguments: secret, timeout, run of the server, '1' if no holder from before a restart can exist
-- Returns the id, how long nobody may be granted a lock, and how long sessions may be kept that are over.
local function open(keys, args)
  local refusal = forbidden(keys[1])
  if refusal then return refusal end
  begin(keys[1])
  local secret, timeout, run, is_known = args[1], tonumber(args[2]), args[3], args[4] == '1'
  local id, doubt = next_number(), doubt()
  call('ZADD', SESSIONS, clock.own + timeout, id .. ':' .. args[2] .. ':' .. secret .. ':1')
  clock.due = math.min(clock.due, clock.own + timeout)
  count_timeout(args[2], 1)
  local wait = quarantine(run, timeout, is_known)
  save_clock()
  return { id, wait, doubt }
end
