-- scan(key, kind, cursor, size, most): the next cursor, a page of a hash, set or sorted set, flat, and the run_id of the
-- process that gave it; "" where it is all one page, or INFO is denied. Then up to `most` members are one page.
local SCAN = {hash = 'HSCAN', zset = 'ZSCAN', set = 'SSCAN'}
local SIZE = {hash = 'HLEN', zset = 'ZCARD', set = 'SCARD'}
local function scan(key, kind, cursor, size, most)
  local page, process = redis.call(SCAN[kind], key, cursor, 'COUNT', size), ''
  if cursor ~= '0' or page[1] ~= '0' then
    -- A cursor means nothing to another process. Where INFO is denied nobody knows which one this is: all at once.
    local info = redis.pcall('INFO', 'server')
    process = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
    if process == '' and redis.call(SIZE[kind], key) <= tonumber(most) then
      page = redis.call(SCAN[kind], key, '0', 'COUNT', '100000000')
    end
  end
  return page[1], page[2], process
end
