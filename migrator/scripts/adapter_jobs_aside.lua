-- uses: adapter moment jobs scan
-- What was set aside: a page of it, or one member back into the queue.
-- KEYS  marker, queue, running, aside
-- ARGV  those of lib_adapter, "page", cursor, its size, the most that may be one page | "back", member
-- Reply {"ok", phase, epoch, "page", next cursor, flat page, run_id, as scan() gives them}
--       · {"ok", phase, epoch, 1 put back, 0 not there}; {"type", what it is}; or lib_adapter's
local phase, epoch = enter()
if not phase then return epoch end
local wrong = foreign()
if wrong then return wrong end
if ARGV[6] == 'page' then
  return {'ok', phase, epoch, 'page', scan(ASIDE, 'hash', ARGV[7], ARGV[8], ARGV[9])}
end
local kept = redis.call('HGET', ASIDE, ARGV[7])
if not kept then return {'ok', phase, epoch, 0} end
redis.call('ZADD', QUEUE, 'NX', string.match(kept, '^%S+ (%S+) '), ARGV[7])
redis.call('HDEL', ASIDE, ARGV[7])
return {'ok', phase, epoch, 1}
