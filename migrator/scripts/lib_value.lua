-- Whole values as ARGV items: string {v} · hash {f, v, …} · list {v, …} · set {m, …} · zset {m, score, …}.
-- 4000 items a call: Lua's unpack fails near 8000.
local STEP = 4000

local function read(key, kind)
  if kind == 'string' then return {redis.call('GET', key)} end
  if kind == 'hash' then return redis.call('HGETALL', key) end
  if kind == 'list' then return redis.call('LRANGE', key, 0, -1) end
  if kind == 'set' then return redis.call('SMEMBERS', key) end
  return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
end

local COUNT = {string = 'STRLEN', hash = 'HLEN', list = 'LLEN', set = 'SCARD', zset = 'ZCARD'}

-- Whether `key` holds exactly ARGV[first .. first+n-1]; the order of fields and members does not matter.
local function same(key, kind, first, n)
  -- Of a key that has grown far beyond that nothing need be read. HLEN may count fields that have expired.
  if kind ~= 'string' and redis.call(COUNT[kind], key) > n + STEP then return false end
  local items = read(key, kind)
  if #items ~= n then return false end
  if kind == 'string' or kind == 'list' then
    for i = 1, n do if items[i] ~= ARGV[first + i - 1] then return false end end
    return true
  end
  local has, step = {}, kind == 'set' and 1 or 2
  for i = 1, n, step do has[items[i]] = items[i + 1] or true end
  for i = first, first + n - 1, step do
    local value = has[ARGV[i]]
    if not value then return false end
    if kind == 'hash' and value ~= ARGV[i + 1] then return false end
    if kind == 'zset' and tonumber(value) ~= tonumber(ARGV[i + 1]) then return false end
  end
  return true
end

-- Writes ARGV[first .. first+n-1] as a new key of that kind.
local WRITE = {string = 'SET', hash = 'HSET', list = 'RPUSH', set = 'SADD', zset = 'ZADD'}
local function put(key, kind, first, n)
  for i = first, first + n - 1, STEP do
    local upto = math.min(i + STEP - 1, first + n - 1)
    if kind ~= 'zset' then
      redis.call(WRITE[kind], key, unpack(ARGV, i, upto))
    else
      local pairs_ = {}
      for j = i, upto, 2 do
        pairs_[#pairs_ + 1] = ARGV[j + 1]
        pairs_[#pairs_ + 1] = ARGV[j]
      end
      redis.call('ZADD', key, unpack(pairs_))
    end
  end
end
