-- Breaks a lease somebody else holds; its number is raised, so that the holder is fenced. Harmless to repeat until
-- somebody takes the lease: who does raises the fence himself.
-- KEYS  lease
-- ARGV  token
-- Reply {1, new number} · {0} if that token does not hold it
local l = redis.call('HMGET', KEYS[1], 'token', 'number', 'broken')
if ARGV[1] == '' then return {0} end
if l[1] == '' and l[3] == ARGV[1] then return {1, tonumber(l[2])} end
if l[1] ~= ARGV[1] then return {0} end
local number = tonumber(l[2]) + 1
redis.call('HSET', KEYS[1], 'token', '', 'owner', '', 'expires_ms', '0', 'number', string.format('%.0f', number),
  'broken', ARGV[1])
return {1, number}
