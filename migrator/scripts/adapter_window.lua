-- uses: adapter scan
-- A window of scores, read from the shape that is the truth: the sorted set by score, the old collection page by page.
-- KEYS  marker and the collection's, by layout
-- ARGV  those of lib_adapter, cursor of the old collection, its page's size, the most of it that may be one page,
--       "up" | "down" | "count", low, high, limit
-- Reply {"ok", phase, epoch, "new", number | flat members and scores} · {"type", what it is}; or lib_adapter's
--       · {"ok", phase, epoch, "old", next cursor, flat page, run_id, as scan() gives them}
local phase, epoch = enter()
if not phase then return epoch end
local r, refused = resolve(phase)
if not r then return refused end

if r.type ~= 'none' and r.type ~= r.kind then return {'type', r.type} end
local order, low, high, limit = ARGV[9], ARGV[10], ARGV[11], ARGV[12]
if not r.new then return {'ok', phase, epoch, 'old', scan(r.truth, r.kind, ARGV[6], ARGV[7], ARGV[8])} end
if order == 'count' then return {'ok', phase, epoch, 'new', redis.call('ZCOUNT', r.truth, low, high)} end
local command = order == 'up' and 'ZRANGEBYSCORE' or 'ZREVRANGEBYSCORE'
if order == 'down' then low, high = high, low end
return {'ok', phase, epoch, 'new', redis.call(command, r.truth, low, high, 'WITHSCORES', 'LIMIT', 0, limit)}
