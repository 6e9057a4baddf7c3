-- Goes on with a session over a new connection, and watches again what it watched. The client calls
-- it several times if it watches much.
--
-- A session is known by the number of its connection, too. So what was sent over an earlier one and
-- arrives late finds no session, and does nothing.
--
-- ARGV: session without that number, the number, run of the server, '1' to ask for the nodes of the
-- session, the numbers by which it may be known, then for each watch: its number, path, the
-- transactions that created and last changed the node when it was watched
-- Returns 'ended'; or how long nobody may be granted a lock, the news for each watch ('D' for a
-- deletion, 'C' for other data, '' if it stands), and the paths of the nodes.

sweep()
local session = ARGV[1] .. ':' .. ARGV[2]
local id, timeout = split(session)
local known
for number in string.gmatch(ARGV[5], '%d+') do
  local name = ARGV[1] .. ':' .. number
  if call('ZSCORE', SESSIONS, name) then known = name end
end
if not known then
  save_clock()
  return 'ended'
end
call('ZREM', SESSIONS, known)
call('ZADD', SESSIONS, clock.own + timeout, session)
local wait = housekeeping().quarantine(ARGV[3], timeout, true)
local news = {}
for i = 6, #ARGV, 4 do
  local path = ARGV[i + 1]
  local node = load(path)
  if not node or text(node.c) ~= ARGV[i + 2] then
    news[#news + 1] = 'D'
  elseif text(node.m) ~= ARGV[i + 3] then
    news[#news + 1] = 'C'
  else
    call('HSET', WATCHERS .. path, id, ARGV[i])
    news[#news + 1] = ''
  end
end
save_clock()
local nodes = {}
if ARGV[4] == '1' then nodes = call('SMEMBERS', OWNED .. id) end
return { wait, news, nodes }
