-- uses: adapter moment jobs
-- Jobs that have been in progress for so long, the longest first.
-- KEYS  marker, queue, running, aside
-- ARGV  those of lib_adapter, seconds, how many to pass over, how many to give
-- Reply {"ok", phase, epoch, members}; {"type", what it is}; or lib_adapter's
local phase, epoch = enter()
if not phase then return epoch end
local wrong = foreign()
if wrong then return wrong end
local since = string.format('%.3f', SECONDS - ARGV[6])
return {'ok', phase, epoch, redis.call('ZRANGEBYSCORE', RUNNING, '-inf', since, 'LIMIT', ARGV[7], ARGV[8])}
