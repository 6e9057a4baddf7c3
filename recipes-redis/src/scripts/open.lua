-- Opens a session.
--
-- ARGV: secret, timeout, run of the server, '1' if no holder from before a restart can exist
-- Returns the id, and how long nobody may be granted a lock.

sweep()
local timeout = tonumber(ARGV[2])
local id = text(next_number())
call('ZADD', SESSIONS, clock.own + timeout, id .. ':' .. ARGV[2] .. ':' .. ARGV[1])
clock.due = math.min(clock.due, clock.own + timeout)
local house = housekeeping()
house.measure_step()
local wait = house.quarantine(ARGV[3], timeout, ARGV[4] == '1')
save_clock()
return { id, wait }
