-- Carries out requests of a session, in order. Each is refused or done by itself.
--
-- Arguments: session with the number of the connection, its id, its timeout, how long a container may
-- be empty, then for each request its word and arguments:
--
-- | request                  | answer after `''` |
-- |--------------------------|--------|
-- | multi N, N operations    | create: path, created by; set: stat; else nothing |
-- | list PATH                | names |
-- | look PATH OWN N1 N2 N3   | names, then for each watch that was set: number, name, data, stat |
-- | read PATH                | data, stat |
-- | stat PATH                | stat |
-- | watch PATH NUMBER        | data, stat |
-- | unwatch PATH             | |
-- | beat                     | |
--
-- `look` lists for a contender whose node is OWN, or was created there by this call if OWN is ''. If
-- others are ahead, it watches the node itself and the two right ahead of it, as far as the session does
-- not watch them yet: what the contender would ask for next.
--
-- Operations: create PATH DATA KIND, delete PATH VERSION, set PATH DATA VERSION, check PATH VERSION.
-- A kind is P (persistent), C (container), E (ephemeral) or S (ephemeral and sequential). A version
-- is '' for any. A stat: created by, changed by, version, owner, count of children, version of the
-- children, children changed by.
--
-- Returns 'ended', or for each request an answer, and the most that the store's clock advances at once.
-- A refused request's answer is the reason, and of a `multi` also the index of the operation.

-- Containers that are looked at when another is created, and when nobody asks for anything else.
local REAPED_MAX, REAPED_MAX_IDLE = 4, 100

local words, at, me
-- The last node that this call has created in a directory.
local created

local function take()
  at = at + 1
  return words[at]
end

local function multi()
  local number, done, answer = next_number(), {}, { '' }
  local refused, index
  for i = 1, tonumber(take()) do
    local what = take()
    local reason, path
    if what == 'create' then
      local at_path, data, kind = take(), take(), take()
      if not refused then reason, path = create(done, number, me, at_path, data, kind) end
      answer[#answer + 1], answer[#answer + 2] = path or '', number
    elseif what == 'delete' then
      local at_path, version = take(), take()
      if not refused then reason = delete(done, at_path, version) end
    elseif what == 'set' then
      local at_path, data, version = take(), take(), take()
      if not refused then reason = set(done, number, at_path, data, version) end
      if not (refused or reason) then add_stat(answer, at_path, view[at_path]) end
    else
      local at_path, version = take(), take()
      if not refused then reason = check(at_path, version) end
    end
    if reason then refused, index = reason, i - 1 end
  end
  if refused then
    forget()
    return { refused, index }
  end
  local makes_room
  for _, step in ipairs(done) do
    if step.what == 'create' then created[step.up] = step end
    if step.kind == 'C' then makes_room = true end
  end
  apply(done)
  -- As fast as containers are made, others that are empty go.
  if makes_room then reap(REAPED_MAX) end
  return answer
end

-- Whether a session that lives has created it.
local function is_owned(path)
  for _, session in ipairs(call('ZRANGE', SESSIONS, 0, -1)) do
    if call('SISMEMBER', OWNED .. match(session, '^%d+'), path) == 1 then return true end
  end
  return false
end

-- The names in a directory. A call of an older library that was stopped halfway has left a name without its
-- node: it is dropped once it is the first. A node that somebody has deleted by hand, or that was evicted, may
-- have a holder that does not know yet.
local function list(path)
  local names = call('ZRANGE', CHILDREN .. path, 0, -1)
  local below = path == '/' and path or path .. '/'
  while names[1] and call('HEXISTS', NODE .. below .. names[1], 'c') == 0
    and not is_owned(below .. names[1])
  do
    call('ZREM', CHILDREN .. path, table.remove(names, 1))
  end
  return names
end

local function look()
  local path, own = take(), take()
  local numbers = { take(), take(), take() }
  local names = list(path)
  if #names == 0 and not load(path) then return { 'NoNode' } end
  local answer = { '', names }
  if own == '' and created[path] then own = created[path].name end
  return watch_ahead(answer, me, path, own, names, numbers)
end

-- Of a list, stat, read or watch.
local function answer_of(word)
  local path = take()
  local wants_data = word == 'read' or word == 'watch'
  local node, data = find(path, wants_data)
  if word == 'watch' then
    local number = take()
    if node then watch(path, me, number) end
  end
  if not node then return { 'NoNode' } end
  if word == 'list' then return { '', list(path) } end
  local answer = { '' }
  if wants_data then answer[2] = data end
  add_stat(answer, path, node)
  return answer
end

local function requests(keys, args)
  begin(keys[1])
  if not heard_from(args[1], args[3]) then
    save_clock()
    return 'ended'
  end
  local done = at_once(args)
  if done then
    save_clock()
    return done
  end
  forget()
  words, at, me, created = args, 4, args[2], {}
  container_rest = args[4]
  local answers = {}
  while at < #args do
    local word = take()
    local answer
    if word == 'multi' then
      answer = multi()
    elseif word == 'look' then
      answer = look()
    elseif word == 'unwatch' then
      call('HDEL', NODE .. take(), 'w' .. me)
    elseif word == 'beat' then
      reap(REAPED_MAX_IDLE)
    else
      answer = answer_of(word)
    end
    answers[#answers + 1] = answer or { '' }
  end
  answers[#answers + 1] = clock.step
  save_clock()
  return answers
end
