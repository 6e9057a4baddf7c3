-- Opens a session.
--
-- Arguments: secret, timeout, run of the server, '1' if no holder from before a restart can exist
-- Returns the id, and how long nobody may be granted a lock.

-- A user who may not run all that the functions run would leave one of them half done.
local function forbidden()
  local needed = {
    { 'GET', CLOCK }, { 'SET', CLOCK, '' }, { 'HMGET', X, 'r' }, { 'HSET', X, 'r', '' },
    { 'HGETALL', WATCHERS }, { 'HDEL', WATCHERS, '' }, { 'HINCRBY', TIMEOUTS, '1', '1' },
    { 'HKEYS', TIMEOUTS }, { 'ZADD', SESSIONS, '0', '' }, { 'ZREM', SESSIONS, '' },
    { 'ZRANGE', SESSIONS, '0', '0' }, { 'ZSCORE', SESSIONS, '' }, { 'ZCARD', CHILDREN },
    { 'SADD', OWNED, '' }, { 'SREM', OWNED, '' }, { 'SMEMBERS', OWNED },
    { 'SRANDMEMBER', OWNED, '1' }, { 'RPUSH', ENDED, '' }, { 'LPOP', ENDED },
    { 'LINDEX', ENDED, '0' }, { 'EXISTS', ENDED }, { 'DEL', NODE }, { 'PUBLISH', NEWS .. '1', '' },
  }
  for _, it in ipairs(needed) do
    if not redis.acl_check_cmd(unpack(it)) then
      return 'NOPERM the functions may not run ' .. it[1] .. ' on ' .. it[2]
    end
  end
end

local function open(keys, args)
  name_keys(keys[1])
  local refusal = forbidden()
  if refusal then return redis.error_reply(refusal) end
  begin(keys[1])
  local secret, timeout, run, is_known = args[1], tonumber(args[2]), args[3], args[4] == '1'
  local id = next_number()
  call('ZADD', SESSIONS, clock.own + timeout, id .. ':' .. args[2] .. ':' .. secret .. ':1')
  clock.due = math.min(clock.due, clock.own + timeout)
  count_timeout(args[2], 1)
  local wait = quarantine(run, timeout, is_known)
  save_clock()
  return { id, wait }
end
