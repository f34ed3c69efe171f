-- uses: adapter
-- A window of scores, read from the shape that is the truth: the sorted set by score, the old collection page by page.
-- KEYS  marker and the collection's, by layout
-- ARGV  those of lib_adapter, cursor of the old collection, its page's size, the most of it that may be one page,
--       "up" | "down" | "count", low, high, limit
-- Reply {"ok", phase, epoch, "new", number | flat members and scores} · {"type", what it is}; or lib_adapter's
--       · {"ok", phase, epoch, "old", next cursor, flat page, run_id; "" where it is all one page, or INFO is denied}
local phase, epoch = enter()
if not phase then return epoch end
local r, refused = resolve(phase)
if not r then return refused end

if r.type ~= 'none' and r.type ~= r.kind then return {'type', r.type} end
local SCAN = {hash = 'HSCAN', zset = 'ZSCAN', set = 'SSCAN'}
local SIZE = {hash = 'HLEN', zset = 'ZCARD', set = 'SCARD'}
local order, low, high, limit = ARGV[9], ARGV[10], ARGV[11], ARGV[12]
if not r.new then
  local scan, process = SCAN[r.kind], ''
  local page = redis.call(scan, r.truth, ARGV[6], 'COUNT', ARGV[7])
  if ARGV[6] ~= '0' or page[1] ~= '0' then
    -- A cursor means nothing to another process. Where INFO is denied nobody knows which one this is: all at once.
    local info = redis.pcall('INFO', 'server')
    process = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
    if process == '' and redis.call(SIZE[r.kind], r.truth) <= tonumber(ARGV[8]) then
      page = redis.call(scan, r.truth, '0', 'COUNT', '100000000')
    end
  end
  return {'ok', phase, epoch, 'old', page[1], page[2], process}
end
if order == 'count' then return {'ok', phase, epoch, 'new', redis.call('ZCOUNT', r.truth, low, high)} end
local command = order == 'up' and 'ZRANGEBYSCORE' or 'ZREVRANGEBYSCORE'
if order == 'down' then low, high = high, low end
return {'ok', phase, epoch, 'new', redis.call(command, r.truth, low, high, 'WITHSCORES', 'LIMIT', 0, limit)}
