-- What is called most: the acquire and the release of one lock. They do what `requests` would do, with less
-- than half of its work, and return nil, with nothing done, if it is not as simple as it mostly is.

-- Where the node of a contender is, most often the last. 1 if it is alone, the first, or gone.
local function place_of(own, names)
  local place = #names
  while place > 1 and names[place] ~= own do place = place - 1 end
  return place
end

-- Adds a watch to an answer: its number, the name, the data and the stat. An ephemeral node has no
-- children.
local function add_watch(answer, number, name, data, c, m, v, o)
  local at = #answer
  answer[at + 1], answer[at + 2], answer[at + 3] = number, name, data
  answer[at + 4], answer[at + 5], answer[at + 6], answer[at + 7] = c, m, v, o
  answer[at + 8], answer[at + 9], answer[at + 10] = 0, 0, c
end

-- Watches nodes at these places, from the first to the last, as far as they are not watched yet. `used` of the
-- numbers are taken.
local function watch_nodes(answer, me, path, names, first, last, numbers, used)
  for i = first, math.max(last, 1), -1 do
    local child = path .. '/' .. names[i]
    local h = call('HMGET', NODE .. child, 'w' .. me, 'c', 'm', 'v', 'o', 'd')
    -- Somebody may have deleted a node by hand. One without an owner may have children, and does not
    -- belong there.
    if h[2] and h[5] and not h[1] then
      used = used + 1
      watch(child, me, numbers[used])
      local c = h[2]
      add_watch(answer, numbers[used], names[i], h[6] or '', c, h[3] or c, h[4] or 0, h[5])
    end
  end
end

-- Watches the node of a contender and the two right ahead of it, if there are any.
local function watch_ahead(answer, me, path, own, names, numbers)
  local place = place_of(own, names)
  if place > 1 then watch_nodes(answer, me, path, names, place, place - 2, numbers, 0) end
  return answer
end

-- As `ask_first` asks, for what these two do. `requests` says what is missing.
local function may_create(me, directory, path)
  local may = redis.acl_check_cmd
  return may('ZADD', CHILDREN .. directory, '0', '') and may('SET', CLOCK, '')
    and may('HSET', NODE .. directory, '', '') and may('HSET', NODE .. path, '', '')
    and may('SADD', OWNED .. me, '') and may('ZRANGE', CHILDREN .. directory, '0', '-1')
end

local function may_delete(owner, up, path)
  local may = redis.acl_check_cmd
  return may('ZREM', CHILDREN .. up, '') and may('DEL', NODE .. path)
    and may('SREM', OWNED .. owner, '') and may('PUBLISH', NEWS .. owner, '')
end

-- `multi 1 create PATH DATA S look DIRECTORY '' N1 N2 N3`
local function enter(me, path, data, directory, numbers)
  local start = #directory + 2
  local base = sub(path, start)
  -- Not right below the directory, or in the root.
  if sub(path, 1, start - 1) ~= directory .. '/' or string.find(base, '/', 1, true) then return end
  local up = call('HMGET', NODE .. directory, 'c', 'o', 'q')
  local q = tonumber(up[3] or 0)
  -- No directory, an ephemeral one, or one of which the sequence has turned over.
  if not up[1] or up[2] and up[2] ~= '0' or q >= 2147483647 then return end
  local sequence = format('%010d', q)
  local name = base .. sequence
  path = path .. sequence
  if is_full or not may_create(me, directory, path) then return end
  -- First, as a name that is there is a refusal.
  if call('ZADD', CHILDREN .. directory, 'NX', sequence, name) == 0 then return end
  local number = next_number()
  call('HSET', NODE .. directory, 'q', q + 1, 'p', number)
  call('SADD', OWNED .. me, path)
  local names = call('ZRANGE', CHILDREN .. directory, 0, -1)
  local listed = { '', names }
  local place = place_of(name, names)
  if place > 1 then
    -- As `watch_ahead` does, and the node is created with its watch.
    call('HSET', NODE .. path, 'c', number, 'o', me, 'd', data, 'w' .. me, numbers[1])
    add_watch(listed, numbers[1], name, data, number, number, 0, me)
    watch_nodes(listed, me, directory, names, place - 1, place - 2, numbers, 1)
  else
    call('HSET', NODE .. path, 'c', number, 'o', me, 'd', data)
  end
  return { { '', path, number }, listed, clock.step }
end

-- `multi 1 delete PATH ''`. Who waits for it is told if nothing was ahead of it, and need not list then.
local function leave(path)
  local fields = call('HGETALL', NODE .. path)
  local owner
  for i = 1, #fields, 2 do
    if fields[i] == 'o' then owner = fields[i + 1] end
  end
  -- No node, or one that may have children.
  if not owner or owner == '0' then return end
  local up, name = parent_of(path)
  -- Without a number of the store's it is not known what is ahead of it.
  local first = call('ZRANGE', CHILDREN .. up, 0, 0, 'WITHSCORES')
  local was_first = first[1] == name and tonumber(first[2]) > 0
  if not may_delete(owner, up, path) then return end
  publish(was_first and 'F' or 'D', path, fields)
  call('ZREM', CHILDREN .. up, name)
  call('DEL', NODE .. path)
  call('SREM', OWNED .. owner, path)
  return { { '' }, clock.step }
end

-- For a call of exactly these requests.
local function at_once(args)
  if args[5] ~= 'multi' or args[6] ~= '1' then return end
  if #args == 16 and args[7] == 'create' and args[10] == 'S' and args[11] == 'look' and args[13] == '' then
    return enter(args[2], args[8], args[9], args[12], { args[14], args[15], args[16] })
  elseif #args == 9 and args[7] == 'delete' and args[9] == '' then
    return leave(args[8])
  end
end
