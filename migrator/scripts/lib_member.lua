-- Members of a collection: a hash field and its value, a zset member and its score, a set member and "".
-- ask(): the values of these members, false where one is not there. Names at most 4000 a call.
local function ask(key, kind, names)
  if kind == 'hash' then return redis.call('HMGET', key, unpack(names)) end
  if kind == 'zset' then return redis.call('ZMSCORE', key, unpack(names)) end
  local there = redis.call('SMISMEMBER', key, unpack(names))
  for i = 1, #there do there[i] = there[i] == 1 and '' end
  return there
end

local function equal(kind, a, b)
  if not a then return false end
  if kind == 'zset' then return tonumber(a) == tonumber(b) end
  return a == b
end

-- The arguments that add one member.
local function add(list, kind, name, value)
  if kind == 'zset' then list[#list + 1] = value end
  list[#list + 1] = name
  if kind == 'hash' then list[#list + 1] = value end
end

local ADD = {hash = 'HSET', zset = 'ZADD', set = 'SADD'}
local REMOVE = {hash = 'HDEL', zset = 'ZREM', set = 'SREM'}
