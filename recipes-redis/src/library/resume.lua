-- Goes on with a session over a new connection, and watches again what it watched. The client calls
-- it several times if it watches much.
--
-- A session is known by the number of its connection, too. So what was sent over an earlier one and
-- arrives late finds no session, and does nothing.
--
-- Arguments: session without that number, its id, its timeout, the number, run of the server, '1' to
-- ask for the nodes of the session, the numbers by which it may be known, then for each watch: its
-- number, path, the transactions that created and last changed the node when it was watched
-- Returns 'ended'; or how long nobody may be granted a lock, the news for each watch ('D' for a
-- deletion, 'C' for other data, '' if it stands), and the paths of the nodes.
local function resume(keys, args)
  local refusal = forbidden(keys[1])
  if refusal then return refusal end
  begin(keys[1])
  local name, id, timeout, number, run = args[1], args[2], tonumber(args[3]), args[4], args[5]
  local known
  for earlier in string.gmatch(args[7], '%d+') do
    local session = name .. ':' .. earlier
    if call('ZSCORE', SESSIONS, session) then known = session end
  end
  if not known then
    save_clock()
    return 'ended'
  end
  call('ZREM', SESSIONS, known)
  call('ZADD', SESSIONS, clock.own + timeout, name .. ':' .. number)
  -- If nothing is known of the run before, somebody has deleted that, and a quarantine with it.
  local wait = quarantine(run, timeout, false)
  forget()
  local news = {}
  for i = 8, #args, 4 do
    local path = args[i + 1]
    local node = find(path)
    if not node or node.c ~= args[i + 2] then
      news[#news + 1] = 'D'
    elseif node.m ~= args[i + 3] then
      news[#news + 1] = 'C'
    else
      watch(path, id, args[i])
      news[#news + 1] = ''
    end
  end
  save_clock()
  local nodes = {}
  if args[6] == '1' then nodes = call('SMEMBERS', OWNED .. id) end
  return { wait, news, nodes }
end
