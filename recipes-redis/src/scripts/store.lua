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
-- | {p}:x          | hash   | what is true of the whole store: see `clock` |
-- | {p}:s          | zset   | live sessions `id:timeout:secret`, each with its deadline |
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
local X, SESSIONS, ENDED, CONTAINERS = P .. ':x', P .. ':s', P .. ':g', P .. ':r'
local NODE, CHILDREN, OWNED = P .. ':n:', P .. ':c:', P .. ':o:'
local WATCHERS, NEWS = P .. ':w:', P .. ':e:'
-- Sessions that one script ends, and nodes that one script deletes of sessions that have ended.
local SWEPT_MAX, PURGED_MAX = 4, 500
-- How long a container may be empty; `requests.lua` knows it.
local container_rest = 60 * 1000 * 1000

local call = redis.call

-- Concatenation would shorten a large number.
local function text(number)
  return string.format('%.0f', number)
end

-- | field | meaning |
-- |---|---|
-- | n | the last transaction number |
-- | t | the server's clock at the last script |
-- | v | the store's own clock: what deadlines are compared with |
-- | g | the most that `v` advances between two scripts; a quarter of the shortest session timeout |
-- | m | the longest session timeout so far |
-- | r | the run of the server that the last session was opened or resumed on |
-- | q | the end of the quarantine after a new run, by `v` |
local clock = { now = 0 }
do
  local time = call('TIME')
  clock.now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local x = call('HMGET', X, 'n', 't', 'v', 'g')
  clock.number = tonumber(x[1] or 0)
  clock.step = tonumber(x[4] or 0)
  -- The gap rule. A server that stood still, was restarted, or whose clock was set forward must not
  -- expire sessions that had no chance to be heard. Sessions in use send more often than `g`.
  local passed = clock.now - tonumber(x[2] or clock.now)
  clock.own = tonumber(x[3] or 0) + math.max(0, math.min(passed, clock.step))
end

local function save_clock()
  call('HSET', X, 'n', text(clock.number), 't', text(clock.now), 'v', text(clock.own))
end

-- Numbers follow the clock, so that a replica that is promoted without the last writes does not give
-- them out again; and they rise whatever the clock does.
local function next_number()
  clock.number = math.max(clock.number + 1, clock.now)
  return clock.number
end

-- ---- Nodes. Changes are made in `view` first, so that a refused transaction changes nothing.

local view, changed = {}, {}

-- Fields of a node: c created by, m changed by, v version, o owner, t creation time (ms),
-- q children created so far, l children now, p children changed by, k kind, d data.
-- Returns false if there is none.
local function load(path)
  local node = view[path]
  if node ~= nil then return node end
  local h = call('HMGET', NODE .. path, 'c', 'm', 'v', 'o', 't', 'q', 'l', 'p', 'k')
  if h[1] then
    node = {
      c = tonumber(h[1]), m = tonumber(h[2]), v = tonumber(h[3]), o = h[4], t = tonumber(h[5]),
      q = tonumber(h[6]), l = tonumber(h[7]), p = tonumber(h[8]), k = h[9],
    }
  elseif path == '/' then
    node = { c = 0, m = 0, v = 0, o = '0', t = 0, q = 0, l = 0, p = 0, k = 'P' }
  else
    node = false
  end
  view[path] = node
  return node
end

-- The caller is about to change the node. The loaded one stays as it is, for `forget`.
local function change(path)
  local node = {}
  for field, value in pairs(load(path)) do node[field] = value end
  view[path] = node
  if not changed[path] then
    changed[path] = true
    changed[#changed + 1] = path
  end
  return node
end

local function forget()
  view, changed = {}, {}
end

local function parent_of(path)
  local parent, name = string.match(path, '^(.*)/([^/]+)$')
  if parent == '' then parent = '/' end
  return parent, name
end

-- Sequences are signed 32-bit numbers, as in ZooKeeper.
local function sequence_of(parent)
  local sequence = parent.q % 4294967296
  if sequence > 2147483647 then sequence = sequence - 4294967296 end
  return sequence
end

-- Each operation returns nil, or why it is refused. `done` collects what `apply` has to write.

local function create(done, number, me, path, data, kind)
  -- A name may be the sequence alone.
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
  if load(path) then return 'NodeExists' end
  parent = change(up)
  parent.q, parent.l, parent.p = parent.q + 1, parent.l + 1, number
  local owner = '0'
  if kind == 'S' or kind == 'E' then owner = me end
  view[path] = {
    c = number, m = number, v = 0, o = owner, t = math.floor(clock.now / 1000),
    q = 0, l = 0, p = number, k = kind,
  }
  if not changed[path] then
    changed[path] = true
    changed[#changed + 1] = path
  end
  done[#done + 1] = { 'create', path, data, sequence }
  return nil, path
end

local function delete(done, number, path, version)
  local node = load(path)
  if not node then return 'NoNode' end
  if version and node.v ~= version then return 'BadVersion' end
  if node.l > 0 or path == '/' then return 'NotEmpty' end
  local up = parent_of(path)
  local parent = change(up)
  parent.l, parent.p = parent.l - 1, number
  done[#done + 1] = { 'delete', path, node }
  view[path] = false
end

local function set(done, number, path, data, version)
  local node = load(path)
  if not node then return 'NoNode' end
  if version and node.v ~= version then return 'BadVersion' end
  node = change(path)
  node.v, node.m = node.v + 1, number
  done[#done + 1] = { 'set', path, data }
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
  call('DEL', WATCHERS .. path)
  for i = 1, #watchers, 2 do
    call('PUBLISH', NEWS .. watchers[i], what .. ' ' .. watchers[i + 1] .. ' ' .. path)
  end
end

-- Writes what was done, and tells who watches it after that.
local function apply(done)
  for _, step in ipairs(done) do
    local what, path = step[1], step[2]
    local up, name = parent_of(path)
    if what == 'create' then
      local node = view[path]
      call('ZADD', CHILDREN .. up, text(step[4]), name)
      call('HSET', NODE .. path, 'd', step[3])
      if node and node.o ~= '0' then call('SADD', OWNED .. node.o, path) end
      if node and node.k == 'C' then
        call('ZADD', CONTAINERS, text(clock.own + container_rest), path)
      end
    elseif what == 'delete' then
      call('ZREM', CHILDREN .. up, name)
      call('DEL', NODE .. path)
      local node = step[3]
      if node.o ~= '0' then call('SREM', OWNED .. node.o, path) end
      if node.k == 'C' then call('ZREM', CONTAINERS, path) end
    else
      call('HSET', NODE .. path, 'd', step[3])
    end
  end
  for _, path in ipairs(changed) do
    local node = view[path]
    if node then
      call('HSET', NODE .. path, 'c', text(node.c), 'm', text(node.m), 'v', node.v, 'o', node.o,
        't', text(node.t), 'q', text(node.q), 'l', node.l, 'p', text(node.p), 'k', node.k)
    end
  end
  changed = {}
  for _, step in ipairs(done) do
    if step[1] == 'delete' then
      notify('D', step[2])
    elseif step[1] == 'set' then
      notify('C', step[2])
    end
  end
end

local function stat_of(node)
  local cversion = (node.q * 2 - node.l) % 4294967296
  if cversion > 2147483647 then cversion = cversion - 4294967296 end
  return { node.c, node.m, node.v, node.o, node.t, node.l, cversion, node.p }
end

-- ---- Sessions.

local function split(session)
  local id, timeout = string.match(session, '^(%d+):(%d+):')
  return id, tonumber(timeout)
end

-- The shortest timeout decides how far the store's clock may advance at once.
local function measure_step()
  local shortest
  for _, session in ipairs(call('ZRANGE', SESSIONS, 0, -1)) do
    local _, timeout = split(session)
    if not shortest or timeout < shortest then shortest = timeout end
  end
  clock.step = shortest and math.floor(shortest / 4) or 0
  call('HSET', X, 'g', text(clock.step))
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
  if math.floor(timeout / 4) <= clock.step then measure_step() end
end

-- Ends sessions that were silent for their timeout.
local function sweep()
  local due = call('ZRANGE', SESSIONS, '-inf', text(clock.own), 'BYSCORE', 'LIMIT', 0, SWEPT_MAX)
  for _, session in ipairs(due) do end_session(session) end
  if #due > 0 or call('EXISTS', ENDED) == 1 then purge() end
end

-- Removes containers that have been empty for a while, a few at a time.
local function reap()
  local due = call('ZRANGE', CONTAINERS, '-inf', text(clock.own), 'BYSCORE', 'LIMIT', 0, 16)
  for _, path in ipairs(due) do
    local node = load(path)
    if node and node.l == 0 then
      local done = {}
      delete(done, next_number(), path)
      apply(done)
    elseif node then
      call('ZADD', CONTAINERS, text(clock.own + container_rest), path)
    else
      call('ZREM', CONTAINERS, path)
    end
  end
end

-- Whether this session lives; if so, it does for another timeout.
local function heard_from(session)
  if not call('ZSCORE', SESSIONS, session) then return false end
  local _, timeout = split(session)
  call('ZADD', SESSIONS, text(clock.own + timeout), session)
  return true
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
  call('HSET', X, 'r', run, 'm', text(longest), 'q', text(over))
  return math.max(0, over - clock.own)
end
