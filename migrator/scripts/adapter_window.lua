-- uses: adapter
-- A window of scores, read from the shape that is the truth: the sorted set by score, the old collection page by page.
-- KEYS  marker and the collection's, by layout
-- ARGV  those of lib_adapter, cursor of the old collection, its page's size, "up" | "down" | "count", low, high, limit
-- Reply {"ok", phase, epoch, "new", number | flat members and scores} · {"type", what it is}; or lib_adapter's
--       · {"ok", phase, epoch, "old", next cursor, flat page}
local phase, epoch = enter()
if not phase then return epoch end
local r, refused = resolve(phase)
if not r then return refused end

if r.type ~= 'none' and r.type ~= r.kind then return {'type', r.type} end
local SCAN = {hash = 'HSCAN', zset = 'ZSCAN', set = 'SSCAN'}
local order, low, high, limit = ARGV[8], ARGV[9], ARGV[10], ARGV[11]
if not r.new then
  local page = redis.call(SCAN[r.kind], r.truth, ARGV[6], 'COUNT', ARGV[7])
  return {'ok', phase, epoch, 'old', page[1], page[2]}
end
if order == 'count' then return {'ok', phase, epoch, 'new', redis.call('ZCOUNT', r.truth, low, high)} end
local command = order == 'up' and 'ZRANGEBYSCORE' or 'ZREVRANGEBYSCORE'
if order == 'down' then low, high = high, low end
return {'ok', phase, epoch, 'new', redis.call(command, r.truth, low, high, 'WITHSCORES', 'LIMIT', 0, limit)}
