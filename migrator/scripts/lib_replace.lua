-- replace(key, kind, at, first, count): makes `key` exactly ARGV[first ..] with the expiry `at` in unix ms, -1 for none.
local NAMES = {hash = 'HKEYS', set = 'SMEMBERS', zset = 'ZRANGE'}
local REMOVE = {hash = 'HDEL', set = 'SREM', zset = 'ZREM'}

-- Written over, never removed first: in a slot on the move a script cannot write a key that it has just removed.
local function replace(key, kind, at, first, count)
  local length = kind == 'list' and redis.call('LLEN', key)
  local had = NAMES[kind] and redis.call(NAMES[kind], key, unpack(kind == 'zset' and {0, -1} or {})) or {}
  put(key, kind, first, count)
  if length then redis.call('LTRIM', key, length, -1) end
  local keep, gone = {}, {}
  for i = first, first + count - 1, kind == 'set' and 1 or 2 do keep[ARGV[i]] = true end
  for _, name in ipairs(had) do if not keep[name] then gone[#gone + 1] = name end end
  for i = 1, #gone, STEP do redis.call(REMOVE[kind], key, unpack(gone, i, math.min(i + STEP - 1, #gone))) end
  if at == -1 then redis.call('PERSIST', key) else redis.call('PEXPIREAT', key, string.format('%.0f', at)) end
end
