-- What all functions of the library use: keys, time, numbers, sessions, and the tree of nodes.
--
-- Functions are made once, when the library is loaded. A script would make them in each run, which took
-- a third of its time. Local variables of the library outlive a call, so `begin` sets all of them.
--
-- The one key is the prefix in braces, so all keys below are in one slot of a cluster.
--
-- | key            | type   | what it holds |
-- |----------------|--------|---------------|
-- | {p}:t          | string | the clock: see `clock` |
-- | {p}:x          | hash   | the run of the server: see `clock` |
-- | {p}:s          | zset   | live sessions `id:timeout:secret:connection`, each with its deadline |
-- | {p}:h          | hash   | how many sessions have which timeout |
-- | {p}:g          | list   | sessions that ended and still have nodes, `id` |
-- | {p}:o:ID       | set    | paths of the nodes of a session |
-- | {p}:n:PATH     | hash   | one node: see `load`; and who watches it: see `notify` |
-- | {p}:c:PATH     | zset   | names of its children, scored by their sequence |
-- | {p}:r          | zset   | containers, each with the time of the next look at it |
-- | {p}:e:ID       | channel| news for a session: `D|F|C number path` |
--
-- All times are microseconds.

-- While the library is loaded, there is neither `redis.call` nor any library of Lua: see `begin`.
local call, format, match, sub
local P, X, CLOCK, SESSIONS, ENDED, CONTAINERS, TIMEOUTS, NODE, CHILDREN, OWNED, NEWS

local function name_keys(prefix)
  if P == prefix then return end
  P = prefix
  X, CLOCK, SESSIONS, ENDED, CONTAINERS = P .. ':x', P .. ':t', P .. ':s', P .. ':g', P .. ':r'
  TIMEOUTS = P .. ':h'
  NODE, CHILDREN, OWNED, NEWS = P .. ':n:', P .. ':c:', P .. ':o:', P .. ':e:'
end

-- Sessions that one call ends, and nodes that one call deletes of sessions that have ended.
local SWEPT_MAX, PURGED_MAX = 4, 500

-- Concatenation would shorten a large number. (`redis.call` does not.)
local function text(number)
  return format('%.0f', number)
end

-- {p}:t has five numbers in one string (`struct`, each a double), because every call reads them, and text
-- would take a tenth of its time:
--
-- | | meaning |
-- |---|---|
-- | 1 | the last transaction number |
-- | 2 | the server's clock when they were written |
-- | 3 | the store's own clock then: what deadlines are compared with |
-- | 4 | no session is due before this, by the store's clock |
-- | 5 | the most that it advances between two writes; a quarter of the shortest session timeout |
--
-- | field of {p}:x | meaning |
-- |---|---|
-- | m | the longest session timeout so far |
-- | r | the run of the server that the last session was opened or resumed on |
-- | q | the end of the quarantine after a new run, by the store's clock |
-- | d | when the last session is due that was silent for longer than the store's clock says, by that clock |
local clock = {}
-- Numbers 1, 4 and 5 as they were read.
local number_was, due_was, step_was

local function read_clock()
  local time = call('TIME')
  clock.now = time[1] * 1000000 + time[2]
  local kept = call('GET', CLOCK)
  if not kept then
    clock.number, clock.last, clock.own, clock.due, clock.step = 0, 0, 0, 0, 0
    number_was, clock.has_gap = nil, false
    return
  end
  clock.number, clock.last, clock.own, clock.due, clock.step = struct.unpack('<ddddd', kept)
  number_was, due_was, step_was = clock.number, clock.due, clock.step
  -- The gap rule. A server that stood still, was restarted, or whose clock was set forward must not
  -- expire sessions that had no chance to be heard. Sessions in use send more often than that.
  clock.own = clock.own + math.max(0, math.min(clock.now - clock.last, clock.step))
  clock.has_gap = clock.now - clock.last > clock.step
end

-- If nothing but the time has changed, once in a while is enough: it must be in time for the gap rule.
local function save_clock()
  if clock.number == number_was and clock.due == due_was and clock.step == step_was
    and clock.now >= clock.last and clock.now < clock.last + clock.step / 8
  then
    return
  end
  call('SET', CLOCK,
    struct.pack('<ddddd', clock.number, clock.now, clock.own, clock.due, clock.step))
end

-- A user who may not run all that the functions run would leave one of them half done. Returns an error
-- for such a user. What a user may do can change at any time, and each server has rights of its own.
local function forbidden(prefix)
  name_keys(prefix)
  local needed = {
    { 'TIME', CLOCK }, { 'INFO', 'memory' }, { 'GET', CLOCK }, { 'SET', CLOCK, '' }, { 'HMGET', X, 'r' }, { 'HSET', X, 'r', '' },
    { 'HDEL', X, 'r' }, { 'HGETALL', NODE }, { 'HDEL', NODE, '' }, { 'HINCRBY', TIMEOUTS, '1', '1' },
    { 'HKEYS', TIMEOUTS }, { 'ZADD', SESSIONS, '0', '' }, { 'ZREM', SESSIONS, '' },
    { 'ZRANGE', SESSIONS, '0', '0' }, { 'ZSCORE', SESSIONS, '' }, { 'ZCARD', CHILDREN },
    { 'SADD', OWNED, '' }, { 'SREM', OWNED, '' }, { 'SMEMBERS', OWNED },
    { 'SRANDMEMBER', OWNED, '1' }, { 'RPUSH', ENDED, '' }, { 'LPOP', ENDED },
    { 'LINDEX', ENDED, '0' }, { 'EXISTS', ENDED }, { 'DEL', NODE }, { 'PUBLISH', NEWS .. '1', '' },
  }
  for _, it in ipairs(needed) do
    if not redis.acl_check_cmd(unpack(it)) then
      return redis.error_reply('NOPERM the functions may not run ' .. it[1] .. ' on ' .. it[2])
    end
  end
end

-- Whether this call has asked.
local has_asked

-- Whatever a call changes, it may change all of it: this fails before the first.
local function ask_first()
  local refusal = not has_asked and forbidden(P)
  if refusal then error(refusal) end
  has_asked = true
end

-- To ask takes longer than an acquire, so what the server has said is believed for a while.
local ASKED_EVERY = 100 * 1000
-- Whether the server refuses what takes memory, by its own rule. These functions may do all (`allow-oom`), as
-- a lock must be released and a session must end; so they have to refuse what creates.
local is_full
-- The rule by which it deletes what it was not told to, if that may be a lock.
local evicts
local asked_at = 0

local function ask_for_memory()
  if clock.now >= asked_at and clock.now < asked_at + ASKED_EVERY then return end
  local info = call('INFO', 'memory')
  local function field(name) return tonumber(match(info, '\n' .. name .. ':(%d+)') or 0) end
  local most, used = field('maxmemory'), field('used_memory') - field('mem_not_counted_for_evict')
  is_full = most > 0 and used > most
  -- As the client judges when it connects. No key here has a time to live.
  evicts = match(info, '\nmaxmemory_policy:([%a-]+)')
  if evicts == 'noeviction' or evicts and sub(evicts, 1, 9) == 'volatile-' then evicts = nil end
  asked_at = clock.now
end

-- An operator can set the rule at any time. Then nobody is answered, so that every guard ends; and whatever the
-- server has deleted, those who come afterwards begin a quarantine, as on a server that has forgotten.
local function refuse_if_it_evicts()
  ask_for_memory()
  if not evicts then return end
  call('HDEL', X, 'r')
  error(redis.error_reply('EVICTS the server evicts keys (maxmemory-policy ' .. evicts .. '), locks too'))
end

-- The number of a new transaction, as text: to write numbers as text takes longest of all here. Numbers
-- follow the clock, so that a replica that is promoted without the last writes does not give them out
-- again; and they rise whatever the clock does.
local function next_number()
  clock.number = math.max(clock.number + 1, clock.now)
  return text(clock.number)
end

-- ---- Nodes. Changes are made in `view`, `writes` and `more` first, so that a refused transaction
-- changes nothing.

-- Nodes by path, as far as they were looked at; false for none.
local view
-- Fields and values to write, by path.
local writes
-- How many children were added, by path.
local more

local function forget()
  view, writes, more = {}, {}, {}
end

-- Fields of a node: c created by, m changed by, v version, o owner, q children created so far, p the last
-- of them created by, d data. A field that is missing is as it was when the node was created. Returns
-- false if there is no node, otherwise its data too. What was not changed is text.
local function load(path, wants_data)
  local node = view[path]
  if node ~= nil and not wants_data then return node end
  local h
  if wants_data then
    h = call('HMGET', NODE .. path, 'c', 'o', 'v', 'm', 'q', 'p', 'd')
  else
    h = call('HMGET', NODE .. path, 'c', 'o', 'v', 'm', 'q', 'p')
  end
  local c = h[1] or path == '/' and '0'
  node = c and {
    c = c, o = h[2] or '0', v = h[3] or '0', m = h[4] or c, q = h[5] or '0',
    p = h[6] or c,
  }
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

local function count(path)
  return call('ZCARD', CHILDREN .. path) + (more[path] or 0)
end

-- What goes with its session has no children.
local function count_of(path, node)
  if node.o ~= '0' then return 0 end
  return count(path)
end

-- The parent of a path, and the name there. That of the root is ''.
local function parent_of(path)
  local up, name = match(path, '^(.*)/(.*)$')
  if up == '' then up = '/' end
  return up, name
end

-- As `load`, of a node that others see when they list its directory. A server that evicts, or an operator, may have
-- deleted one of the two keys.
local function find(path, wants_data)
  local node, data = load(path, wants_data)
  local up, name = parent_of(path)
  if node and path ~= '/' and not call('ZSCORE', CHILDREN .. up, name) then return false end
  return node, data
end

-- Signed 32-bit numbers, as in ZooKeeper.
local function signed(number)
  number = number % 4294967296
  if number > 2147483647 then number = number - 4294967296 end
  return number
end

-- A version is '' for any.
local function is_other(version, node)
  return version ~= '' and tonumber(version) ~= tonumber(node.v)
end

-- Each operation returns nil, or why it is refused. `done` collects what `apply` has to do.

local function create(done, number, me, path, data, kind)
  if is_full then return 'Full' end
  local up, name = parent_of(path)
  -- The name may be the sequence alone.
  if name == '' and kind ~= 'S' then return 'NodeExists' end
  local parent = load(up)
  if not parent then return 'NoNode' end
  if parent.o ~= '0' then return 'EphemeralParent' end
  local sequence = '0'
  if kind == 'S' then
    sequence = format('%010d', signed(parent.q))
    path, name = path .. sequence, name .. sequence
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
  writes[path] = { 'c', number, 'o', owner, 'd', data }
  done[#done + 1] = {
    what = 'create', path = path, up = up, name = name, sequence = sequence, owner = owner,
    kind = kind,
  }
  return nil, path
end

local function delete(done, path, version)
  local node = load(path)
  if not node then return 'NoNode' end
  if is_other(version, node) then return 'BadVersion' end
  if path == '/' or node.o == '0' and count(path) > 0 then return 'NotEmpty' end
  local up, name = parent_of(path)
  more[up] = (more[up] or 0) - 1
  view[path], writes[path] = false, nil
  done[#done + 1] = { what = 'delete', path = path, up = up, name = name, owner = node.o }
end

local function set(done, number, path, data, version)
  local node = load(path)
  if not node then return 'NoNode' end
  if is_other(version, node) then return 'BadVersion' end
  node.v, node.m = node.v + 1, number
  write(path, 'v', node.v)
  write(path, 'm', number)
  write(path, 'd', data)
  done[#done + 1] = { what = 'set', path = path }
end

local function check(path, version)
  local node = load(path)
  if not node then return 'NoNode' end
  if is_other(version, node) then return 'BadVersion' end
end

-- Who watches a node is a field of it too: `w` and the session, with the number of its last watch. No
-- other field has a longer name than one letter, so who is missing there is told apart by that.
local function watcher(field)
  return #field > 1 and sub(field, 2)
end

-- Tells everybody who watches a node, of which these are all fields.
local function publish(what, path, fields)
  -- The server writes first to whom it has news for last, and who came first waits for the lock.
  for i = #fields - 1, 1, -2 do
    local session = watcher(fields[i])
    if session then call('PUBLISH', NEWS .. session, what .. ' ' .. fields[i + 1] .. ' ' .. path) end
  end
end

local function notify(what, path)
  local fields = call('HGETALL', NODE .. path)
  publish(what, path, fields)
  -- Once. With the node itself, its watches go.
  if what == 'D' then return end
  for i = 1, #fields, 2 do
    if watcher(fields[i]) then call('HDEL', NODE .. path, fields[i]) end
  end
end

local function watch(path, me, number)
  call('HSET', NODE .. path, 'w' .. me, number)
end

-- How long a container may be empty; a request may say otherwise.
local container_rest

local function look_again_at(container)
  call('ZADD', CONTAINERS, clock.own + container_rest, container)
end

-- Tells who watches it, and does what was decided. All get it when the call is over.
local function apply(done)
  if #done > 0 then ask_first() end
  for _, step in ipairs(done) do
    if step.what == 'delete' then
      notify('D', step.path)
    elseif step.what == 'set' then
      notify('C', step.path)
    end
  end
  for _, step in ipairs(done) do
    local path, owner = step.path, step.owner
    if step.what == 'create' then
      call('ZADD', CHILDREN .. step.up, step.sequence, step.name)
      if owner ~= '0' then call('SADD', OWNED .. owner, path) end
      if step.kind == 'C' then look_again_at(path) end
    elseif step.what == 'delete' then
      call('ZREM', CHILDREN .. step.up, step.name)
      call('DEL', NODE .. path)
      if owner ~= '0' then
        call('SREM', OWNED .. owner, path)
      else
        call('ZREM', CONTAINERS, path)
      end
    end
  end
  for path, fields in pairs(writes) do
    -- `unpack` fails beyond some 8,000. A field that was written again comes again.
    for i = 1, #fields, 1000 do
      call('HSET', NODE .. path, unpack(fields, i, math.min(i + 999, #fields)))
    end
  end
  writes, more = {}, {}
end

-- Adds the stat of a node to an answer. Tables in answers take long, so there is none for a stat.
local function add_stat(answer, path, node)
  local at, children = #answer, count_of(path, node)
  answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = node.c, node.m, node.v, node.o
  answer[at + 5], answer[at + 6] = children, signed(node.q * 2 - children)
  answer[at + 7] = node.p
end
