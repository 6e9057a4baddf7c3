-- Sessions: who lives, what goes with them, and what follows a restart.

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
  forget()
  local left = PURGED_MAX
  while left > 0 do
    local id = call('LINDEX', ENDED, 0)
    if not id then return end
    local paths = call('SRANDMEMBER', OWNED .. id, left)
    if #paths == 0 then
      call('LPOP', ENDED)
    else
      for _, path in ipairs(paths) do
        local done = {}
        if delete(done, path, '') then
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
  local id, timeout = match(session, '^(%d+):(%d+):')
  call('ZREM', SESSIONS, session)
  call('RPUSH', ENDED, id)
  count_timeout(timeout, -1)
end

-- Removes containers that have been empty for a while. It looks at so many that are due.
local function reap(most)
  local due = call('ZRANGE', CONTAINERS, '-inf', clock.own, 'BYSCORE', 'LIMIT', 0, most)
  for _, path in ipairs(due) do
    local node = load(path)
    if node and count(path) == 0 then
      local done = {}
      delete(done, path, '')
      apply(done)
    elseif node then
      look_again_at(path)
    else
      call('ZREM', CONTAINERS, path)
    end
  end
end

-- Contenders of a server's new run may not see what it has forgotten. So none is granted a lock
-- before every holder of the run before must have noticed. Returns how long that still takes.
--
-- `is_known`: whether the caller knows that nobody held a lock before.
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

-- How long sessions may still be kept that are over: after a gap the store's clock does not say how long
-- a session was silent. Whoever is in contact is heard before that.
local function doubt()
  if clock.has_gap then
    local last = call('ZRANGE', SESSIONS, -1, -1, 'WITHSCORES')
    if last[2] then call('HSET', X, 'd', last[2]) end
  end
  return math.max(0, tonumber(call('HGET', X, 'd') or 0) - clock.own)
end

-- Ends sessions that were silent for their timeout.
local function sweep()
  if clock.own < clock.due then return end
  ask_first()
  local due = call('ZRANGE', SESSIONS, '-inf', clock.own, 'BYSCORE', 'LIMIT', 0, SWEPT_MAX)
  for _, session in ipairs(due) do end_session(session) end
  purge()
  local first = call('ZRANGE', SESSIONS, 0, 0, 'WITHSCORES')
  clock.due = tonumber(first[2] or clock.own)
  if call('EXISTS', ENDED) == 1 then clock.due = 0 end
end

-- Whether this session lives; if so, it does for another timeout. What is missing to a whole one is
-- less than the time between two beats, so not every call has to write it.
local function heard_from(session, timeout)
  local deadline = call('ZSCORE', SESSIONS, session)
  if not deadline then return false end
  if clock.own + timeout * 23 / 24 > tonumber(deadline) then
    call('ZADD', SESSIONS, clock.own + timeout, session)
  end
  return true
end

-- What every call begins with. It may be the first, and the one before may have failed anywhere.
local function begin(prefix)
  if not call then
    call, format, match, sub = redis.call, string.format, string.match, string.sub
  end
  name_keys(prefix)
  has_asked = false
  container_rest = 60 * 1000 * 1000
  read_clock()
  refuse_if_it_evicts()
  sweep()
end
