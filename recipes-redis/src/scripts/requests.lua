-- Carries out requests of a session, in order. Each is refused or done by itself.
--
-- ARGV: session with the number of the connection, how long a container may be empty, then for each
-- request its word and arguments:
--
-- | request                  | answer after `''` |
-- |--------------------------|--------|
-- | multi N, N operations    | for each operation: path, created by; or a stat; or nothing |
-- | list PATH                | names |
-- | look PATH OWN N1 N2 N3   | names, then for each watch that was set: number, name, stat, data |
-- | read PATH                | stat, data |
-- | stat PATH                | stat |
-- | watch PATH NUMBER        | stat, data |
-- | unwatch PATH             | |
-- | beat                     | |
--
-- `look` lists for a contender whose node is OWN, or was created there by this script if OWN is ''. If
-- others are ahead, it watches the node itself and the two right ahead of it: what the contender would
-- ask for next.
--
-- Operations: create PATH DATA KIND, delete PATH VERSION, set PATH DATA VERSION, check PATH VERSION.
-- A kind is P (persistent), C (container), E (ephemeral) or S (ephemeral and sequential). A version
-- is '' for any.
--
-- Returns 'ended', or for each request an answer, and the most that the store's clock advances at once.
-- A refused request's answer is the reason, and of a `multi` also the index of the operation.

sweep()
local session = ARGV[1]
container_rest = tonumber(ARGV[2])
local me, timeout = split(session)
if not heard_from(session, timeout) then
  save_clock()
  return 'ended'
end
local at = 2
local function take()
  at = at + 1
  return ARGV[at]
end
local function version()
  return tonumber(take())
end

-- The name and sequence of the last node that this script has created in a directory.
local created = {}

local function multi()
  local count = tonumber(take())
  local number, done, answer = next_number(), {}, { '' }
  local refused, index
  for i = 1, count do
    local what = take()
    local reason, path
    if what == 'create' then
      local at_path, data, kind = take(), take(), take()
      if not refused then reason, path = create(done, number, me, at_path, data, kind) end
      answer[#answer + 1] = { path or '', number }
    elseif what == 'delete' then
      local at_path, expected = take(), version()
      if not refused then reason = delete(done, number, at_path, expected) end
      answer[#answer + 1] = {}
    elseif what == 'set' then
      local at_path, data, expected = take(), take(), version()
      if not refused then reason = set(done, number, at_path, data, expected) end
      answer[#answer + 1] = not (refused or reason) and stat_of(at_path, view[at_path]) or {}
    else
      local at_path, expected = take(), version()
      if not refused then reason = check(at_path, expected) end
      answer[#answer + 1] = {}
    end
    if reason then refused, index = reason, i - 1 end
  end
  if refused then
    forget()
    return { refused, index }
  end
  for _, step in ipairs(done) do
    if step[1] == 'create' then
      local up, name = parent_of(step[2])
      created[up] = { name, step[3] }
    end
  end
  apply(done)
  return answer
end

local function look()
  local path, own = take(), take()
  local numbers = { take(), take(), take() }
  if not load(path) then return { 'NoNode' } end
  local names = call('ZRANGE', CHILDREN .. path, 0, -1)
  local watches = {}
  -- Alone.
  if #names < 2 then return { '', names, watches } end
  local sequence
  if own ~= '' then
    sequence = call('ZSCORE', CHILDREN .. path, own)
  elseif created[path] then
    own, sequence = created[path][1], created[path][2]
  end
  if sequence then
    local ahead = call('ZRANGE', CHILDREN .. path, '(' .. sequence, '-inf', 'BYSCORE', 'REV',
      'LIMIT', 0, 2)
    if #ahead > 0 then table.insert(ahead, 1, own) end
    for i, name in ipairs(ahead) do
      local child = path .. '/' .. name
      local node, data = load(child, true)
      -- Somebody may have deleted a node by hand.
      if node then
        call('HSET', WATCHERS .. child, me, numbers[i])
        watches[#watches + 1] = { tonumber(numbers[i]), name, stat_of(child, node), data }
      end
    end
  end
  return { '', names, watches }
end

local answers = {}
while at < #ARGV do
  local word = take()
  local answer = { '' }
  if word == 'multi' then
    answer = multi()
  elseif word == 'look' then
    answer = look()
  elseif word == 'unwatch' then
    call('HDEL', WATCHERS .. take(), me)
  elseif word == 'beat' then
    housekeeping().reap()
  else
    -- list, stat, read, watch
    local path = take()
    local node, data = load(path, word == 'read' or word == 'watch')
    if word == 'watch' then
      local number = take()
      if node then call('HSET', WATCHERS .. path, me, number) end
    end
    if not node then
      answer = { 'NoNode' }
    elseif word == 'list' then
      answer = { '', call('ZRANGE', CHILDREN .. path, 0, -1) }
    else
      answer = { '', stat_of(path, node), data }
    end
  end
  answers[#answers + 1] = answer
end
answers[#answers + 1] = clock.step
save_clock()
return answers
