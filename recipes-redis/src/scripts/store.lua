#!lua flags=allow-oom
-- What every script begins with: keys, time, numbers, sessions, and the tree of nodes.
--
-- `allow-oom`: a server that is full refuses writes of others, but a lock must still be released and
-- a session must still expire. What the locks store is small.
--
-- KEYS[1] is the prefix in braces, so all keys below are in one slot of a cluster.
--
-- | key            | type   | what it holds |
-- |----------------|--------|---------------|
-- | {p}:t          | string | the clock: see `clock` |
-- | {p}:x          | hash   | the run of the server: see `clock` |
-- | {p}:s          | zset   | live sessions `id:timeout:secret:connection`, each with its deadline |
-- | {p}:h          | hash   | how many sessions have which timeout |
-- | {p}:g          | list   | sessions that ended and still have nodes, `id` |
-- | {p}:o:ID       | set    | paths of the nodes of a session |
-- | {p}:n:PATH     | hash   | one node: see `load` |
-- | {p}:c:PATH     | zset   | names of its children, scored by their sequence |
-- | {p}:w:PATH     | hash   | sessions that watch it, each with the number of its last watch |
-- | {p}:r          | zset   | containers, each with the time of the next look at it |
-- | {p}:e:ID       | channel| news for a session: `D|C number path` |
--
-- All times are microseconds.

local P = KEYS[1]
local X, CLOCK, SESSIONS, ENDED, CONTAINERS = P .. ':x', P .. ':t', P .. ':s', P .. ':g', P .. ':r'
local TIMEOUTS = P .. ':h'
local NODE, CHILDREN, OWNED = P .. ':n:', P .. ':c:', P .. ':o:'
local WATCHERS, NEWS = P .. ':w:', P .. ':e:'
-- Sessions that one script ends, and nodes that one script deletes of sessions that have ended.
local SWEPT_MAX, PURGED_MAX = 4, 500
-- How long a container may be empty; `requests.lua` knows it.
local container_rest = 60 * 1000 * 1000

local call = redis.call
local find, sub = string.find, string.sub

-- Concatenation would shorten a large number. (`redis.call` does not.)
local function text(number)
  return string.format('%.0f', number)
end

-- {p}:t has five numbers in one string (`struct`, each a double), because every script reads and writes
-- them, and text would take a tenth of its time:
--
-- | | meaning |
-- |---|---|
-- | 1 | the last transaction number |
-- | 2 | the server's clock at the last script |
-- | 3 | the store's own clock: what deadlines are compared with |
-- | 4 | no session is due before this, by the store's clock |
-- | 5 | the most that it advances between two scripts; a quarter of the shortest session timeout |
--
-- | field of {p}:x | meaning |
-- |---|---|
-- | m | the longest session timeout so far |
-- | r | the run of the server that the last session was opened or resumed on |
-- | q | the end of the quarantine after a new run, by the store's clock |
local clock = { number = 0, last = 0, own = 0, due = 0, step = 0 }
do
  local time = call('TIME')
  clock.now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local kept = call('GET', CLOCK)
  if kept then
    clock.number, clock.last, clock.own, clock.due, clock.step = struct.unpack('<ddddd', kept)
    -- The gap rule. A server that stood still, was restarted, or whose clock was set forward must not
    -- expire sessions that had no chance to be heard. Sessions in use send more often than that.
    clock.own = clock.own + math.max(0, math.min(clock.now - clock.last, clock.step))
  end
end

local function save_clock()
  call('SET', CLOCK,
    struct.pack('<ddddd', clock.number, clock.now, clock.own, clock.due, clock.step))
end

-- Numbers follow the clock, so that a replica that is promoted without the last writes does not give
-- them out again; and they rise whatever the clock does.
local function next_number()
  clock.number = math.max(clock.number + 1, clock.now)
  return clock.number
end

-- ---- Nodes. Changes are made in `view`, `writes` and `more` first, so that a refused transaction
-- changes nothing.

-- Nodes by path, as far as they were looked at; false for none.
local view = {}
-- Fields and values to write, by path.
local writes = {}
-- How many children were added, by path, and by which transaction children were changed last.
local more, touched = {}, {}

-- Fields of a node: c created by, m changed by, v version, o owner, q children created so far, p
-- children changed by, d data. A field that is missing is as it was when the node was created. Returns
-- false if there is no node, otherwise its data too.
local function load(path, wants_data)
  local node = view[path]
  if node ~= nil and not wants_data then return node end
  local h
  if wants_data then
    h = call('HMGET', NODE .. path, 'c', 'o', 'v', 'm', 'q', 'p', 'd')
  else
    h = call('HMGET', NODE .. path, 'c', 'o', 'v', 'm', 'q', 'p')
  end
  if h[1] or path == '/' then
    local c = tonumber(h[1] or 0)
    node = {
      c = c, o = h[2] or '0', v = tonumber(h[3] or 0), m = tonumber(h[4] or c),
      q = tonumber(h[5] or 0), p = touched[path] or tonumber(h[6] or c),
    }
  else
    node = false
  end
  view[path] = node
  return node, h[7] or ''
end

local function write(path, field, value)
  local fields = writes[path]
  if fields then
    fields[#fields + 1], fields[#fields + 2] = field, value
  else
    writes[path] = { field, value }
  end
end

local function forget()
  view, writes, more, touched = {}, {}, {}, {}
end

local function count(path)
  return call('ZCARD', CHILDREN .. path) + (more[path] or 0)
end

-- The parent of a path, and its name there; nothing for the root.
local function parent_of(path)
  local slash = find(path, '/[^/]*$')
  if slash == #path then return nil end
  if slash == 1 then return '/', sub(path, 2) end
  return sub(path, 1, slash - 1), sub(path, slash + 1)
end

-- Sequences are signed 32-bit numbers, as in ZooKeeper.
local function sequence_of(parent)
  local sequence = parent.q % 4294967296
  if sequence > 2147483647 then sequence = sequence - 4294967296 end
  return sequence
end

-- Each operation returns nil, or why it is refused. `done` collects what `apply` has to do.

local function create(done, number, me, path, data, kind)
  -- The name may be the sequence alone.
  local up = parent_of(kind == 'S' and path .. '0' or path)
  if not up then return 'NodeExists' end
  local parent = load(up)
  if not parent then return 'NoNode' end
  if parent.o ~= '0' then return 'EphemeralParent' end
  local sequence = 0
  if kind == 'S' then
    sequence = sequence_of(parent)
    path = path .. string.format('%010d', sequence)
  end
  -- Most names are new.
  if view[path] == nil and call('EXISTS', NODE .. path) == 0 then view[path] = false end
  if load(path) then return 'NodeExists' end
  parent.q, parent.p = parent.q + 1, number
  write(up, 'q', parent.q)
  write(up, 'p', number)
  more[up] = (more[up] or 0) + 1
  local owner = '0'
  if kind == 'S' or kind == 'E' then owner = me end
  view[path] = { c = number, m = number, v = 0, o = owner, q = 0, p = number }
  writes[path] = { 'c', text(number), 'o', owner, 'd', data }
  done[#done + 1] = { 'create', path, sequence, owner, kind }
  return nil, path
end

local function delete(done, number, path, version)
  local node = load(path)
  if not node then return 'NoNode' end
  if version and node.v ~= version then return 'BadVersion' end
  if path == '/' or node.o == '0' and count(path) > 0 then return 'NotEmpty' end
  local up = parent_of(path)
  if view[up] then view[up].p = number end
  write(up, 'p', number)
  more[up], touched[up] = (more[up] or 0) - 1, number
  view[path], writes[path] = false, nil
  done[#done + 1] = { 'delete', path, node.o }
end

local function set(done, number, path, data, version)
  local node = load(path)
  if not node then return 'NoNode' end
  if version and node.v ~= version then return 'BadVersion' end
  node.v, node.m = node.v + 1, number
  write(path, 'v', node.v)
  write(path, 'm', number)
  write(path, 'd', data)
  done[#done + 1] = { 'set', path }
end

local function check(path, version)
  local node = load(path)
  if not node then return 'NoNode' end
  if version and node.v ~= version then return 'BadVersion' end
end

-- Tells everybody who watches a node, once.
local function notify(what, path)
  local watchers = call('HGETALL', WATCHERS .. path)
  if #watchers == 0 then return end
  for i = 1, #watchers, 2 do
    call('PUBLISH', NEWS .. watchers[i], what .. ' ' .. watchers[i + 1] .. ' ' .. path)
  end
  call('DEL', WATCHERS .. path)
end

-- Does what was decided, and tells who watches it after that.
local function apply(done)
  for _, step in ipairs(done) do
    local what, path = step[1], step[2]
    local up, name = parent_of(path)
    if what == 'create' then
      local owner, kind = step[4], step[5]
      call('ZADD', CHILDREN .. up, step[3], name)
      if owner ~= '0' then call('SADD', OWNED .. owner, path) end
      if kind == 'C' then call('ZADD', CONTAINERS, clock.own + container_rest, path) end
    elseif what == 'delete' then
      local owner = step[3]
      call('ZREM', CHILDREN .. up, name)
      call('DEL', NODE .. path)
      if owner ~= '0' then
        call('SREM', OWNED .. owner, path)
      else
        call('ZREM', CONTAINERS, path)
      end
    end
  end
  for path, fields in pairs(writes) do
    call('HSET', NODE .. path, unpack(fields))
  end
  writes, more, touched = {}, {}, {}
  for _, step in ipairs(done) do
    if step[1] == 'delete' then
      notify('D', step[2])
    elseif step[1] == 'set' then
      notify('C', step[2])
    end
  end
end

local function stat_of(path, node)
  local children = count(path)
  local cversion = (node.q * 2 - children) % 4294967296
  if cversion > 2147483647 then cversion = cversion - 4294967296 end
  -- Numbers follow the clock, so one tells when.
  return { node.c, node.m, node.v, node.o, math.floor(node.c / 1000), children, cversion, node.p }
end

-- ---- Sessions.

local function split(session)
  local id, timeout = string.match(session, '^(%d+):(%d+):')
  return id, tonumber(timeout)
end

-- What few scripts need. To make functions takes time, so these are made by whoever needs them.
local function housekeeping()
  -- Counts the sessions with a timeout. The shortest decides how far the store's clock may advance at
  -- once.
  local function count_timeout(timeout, change)
    if call('HINCRBY', TIMEOUTS, timeout, change) <= 0 then call('HDEL', TIMEOUTS, timeout) end
    local shortest
    for _, it in ipairs(call('HKEYS', TIMEOUTS)) do
      shortest = math.min(shortest or math.huge, tonumber(it))
    end
    clock.step = shortest and math.floor(shortest / 4) or 0
  end

  -- Deletes nodes of sessions that have ended, up to a bound: a session may have had very many.
  -- Whoever waits for such a node waits a little longer; nobody is granted a lock too early.
  local function purge()
    local left = PURGED_MAX
    while left > 0 do
      local id = call('LINDEX', ENDED, 0)
      if not id then return end
      local paths = call('SRANDMEMBER', OWNED .. id, left)
      if #paths == 0 then
        call('LPOP', ENDED)
      else
        local number = next_number()
        for _, path in ipairs(paths) do
          local done = {}
          if delete(done, number, path) then
            -- A node that somebody has deleted by hand.
            call('SREM', OWNED .. id, path)
          else
            apply(done)
          end
        end
        left = left - #paths
      end
    end
  end

  local function end_session(session)
    local id, timeout = split(session)
    call('ZREM', SESSIONS, session)
    call('RPUSH', ENDED, id)
    count_timeout(text(timeout), -1)
  end

  -- Removes containers that have been empty for a while, a few at a time.
  local function reap()
    local due = call('ZRANGE', CONTAINERS, '-inf', clock.own, 'BYSCORE', 'LIMIT', 0, 16)
    for _, path in ipairs(due) do
      local node = load(path)
      if node and count(path) == 0 then
        local done = {}
        delete(done, next_number(), path)
        apply(done)
      elseif node then
        call('ZADD', CONTAINERS, clock.own + container_rest, path)
      else
        call('ZREM', CONTAINERS, path)
      end
    end
  end

  -- Contenders of a server's new run may not see what it has forgotten. So none is granted a lock
  -- before every holder of the run before must have noticed. Returns how long that still takes.
  --
  -- `is_known`: whether the caller knows that nobody held a lock before, or that the server has been
  -- up for long enough.
  local function quarantine(run, timeout, is_known)
    local x = call('HMGET', X, 'r', 'm', 'q')
    local longest = math.max(tonumber(x[2] or 0), timeout)
    local over = tonumber(x[3] or 0)
    local is_new = x[1] ~= run
    if not x[1] then is_new = not is_known end
    if is_new then
      -- A holder gives up after half of its timeout; the clock may be set forward once.
      over = clock.own + math.floor(longest * 3 / 4)
    end
    call('HSET', X, 'r', run, 'm', longest, 'q', over)
    return math.max(0, over - clock.own)
  end

  return {
    count_timeout = count_timeout, purge = purge, end_session = end_session, reap = reap,
    quarantine = quarantine,
  }
end

-- Ends sessions that were silent for their timeout.
local function sweep()
  if clock.own < clock.due then return end
  local due = call('ZRANGE', SESSIONS, '-inf', clock.own, 'BYSCORE', 'LIMIT', 0, SWEPT_MAX)
  local house = housekeeping()
  for _, session in ipairs(due) do house.end_session(session) end
  house.purge()
  local first = call('ZRANGE', SESSIONS, 0, 0, 'WITHSCORES')
  clock.due = tonumber(first[2] or clock.own)
  if call('EXISTS', ENDED) == 1 then clock.due = 0 end
end

-- Whether this session lives; if so, it does for another timeout. What is missing to a whole one is
-- less than the time between two beats, so not every script has to write it.
local function heard_from(session, timeout)
  local deadline = call('ZSCORE', SESSIONS, session)
  if not deadline then return false end
  if clock.own + timeout * 23 / 24 > tonumber(deadline) then
    call('ZADD', SESSIONS, clock.own + timeout, session)
  end
  return true
end
