-- Opens a session.
--
-- ARGV: secret, timeout, run of the server, '1' if no holder from before a restart can exist
-- Returns the id, and how long nobody may be granted a lock.

-- A user who may not run all that the scripts run would leave one of them half done.
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
    return redis.error_reply('NOPERM the scripts may not run ' .. it[1] .. ' on ' .. it[2])
  end
end

sweep()
local timeout = tonumber(ARGV[2])
local id = text(next_number())
call('ZADD', SESSIONS, clock.own + timeout, id .. ':' .. ARGV[2] .. ':' .. ARGV[1] .. ':1')
clock.due = math.min(clock.due, clock.own + timeout)
local house = housekeeping()
house.count_timeout(ARGV[2], 1)
local wait = house.quarantine(ARGV[3], timeout, ARGV[4] == '1')
save_clock()
return { id, wait }
