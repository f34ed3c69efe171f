-- uses: adapter scan
-- A window of scores, read from the shape that is the truth: the sorted set by score, the old collection page by page.
-- KEYS  marker and the collection's, by layout
-- ARGV  those of lib_adapter, cursor of the old collection, its page's size, the most of it that may be one page,
--       "up" | "down" | "count", low, high, limit[, for "up" the member, of score `low`, after which to go on; where it
--       is gone or has another score, the window begins at `low` again]
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
if order == 'down' then
  local found = redis.call('ZREVRANGEBYSCORE', r.truth, high, low, 'WITHSCORES', 'LIMIT', 0, limit)
  return {'ok', phase, epoch, 'new', found}
end
local score = ARGV[13] and redis.call('ZSCORE', r.truth, ARGV[13])
if not score or tonumber(score) ~= tonumber(low) then
  local found = redis.call('ZRANGEBYSCORE', r.truth, low, high, 'WITHSCORES', 'LIMIT', 0, limit)
  return {'ok', phase, epoch, 'new', found}
end
-- By rank: of many members at one score no page has to pass over those of the pages before it.
local from = redis.call('ZRANK', r.truth, ARGV[13]) + 1
local found = redis.call('ZRANGE', r.truth, from, from + limit - 1, 'WITHSCORES')
while #found > 0 and tonumber(found[#found]) > tonumber(high) do found[#found], found[#found - 1] = nil, nil end
return {'ok', phase, epoch, 'new', found}
