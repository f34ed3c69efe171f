-- uses: guard
-- Puts saved members of one collection in place: those that are there stay as they are, and so does its expiry.
-- KEYS  marker, the collection's key
-- ARGV  guard (4), kind, expiry in unix ms | -1 for none, then members: hash {f, v, …} · set {m, …} · zset {m, score, …}
-- Reply the number of members added · -1 something of another type is there; or the guard's
local refused = guard()
if refused then return refused end

local key, kind, added = KEYS[2], ARGV[5], 0
local is = redis.call('TYPE', key).ok
local fresh = is == 'none'
if not fresh and is ~= kind then return -1 end
for i = 7, #ARGV, kind == 'set' and 1 or 2 do
  if kind == 'hash' then added = added + redis.call('HSETNX', key, ARGV[i], ARGV[i + 1])
  elseif kind == 'zset' then added = added + redis.call('ZADD', key, 'NX', ARGV[i + 1], ARGV[i])
  else added = added + redis.call('SADD', key, ARGV[i]) end
end
if fresh and ARGV[6] ~= '-1' then redis.call('PEXPIREAT', key, ARGV[6]) end
return added
