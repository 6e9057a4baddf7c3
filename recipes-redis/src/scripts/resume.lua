-- Goes on with a session over a new connection, and watches again what it watched. The client calls
-- it several times if it watches much.
--
-- ARGV: session, run of the server, '1' to ask for the nodes of the session, then for each watch: its
-- number, path, the transactions that created and last changed the node when it was watched
-- Returns 'ended'; or how long nobody may be granted a lock, the news for each watch ('D' for a
-- deletion, 'C' for other data, '' if it stands), and the paths of the nodes.

sweep()
local session = ARGV[1]
local id, timeout = split(session)
if not heard_from(session, timeout) then
  save_clock()
  return 'ended'
end
local wait = housekeeping().quarantine(ARGV[2], timeout, true)
local news = {}
for i = 4, #ARGV, 4 do
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
if ARGV[3] == '1' then nodes = call('SMEMBERS', OWNED .. id) end
return { wait, news, nodes }
