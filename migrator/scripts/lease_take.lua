-- Takes the lease if nobody holds it by the server's clock; the fence number only goes up.
-- KEYS  lease
-- ARGV  token, owner, lease in ms, least number
-- Reply {1, number, ms until it expires} · {0, owner, ms until it expires, token}
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local l = redis.call('HMGET', KEYS[1], 'token', 'owner', 'expires_ms', 'number')
local left = tonumber(l[3] or 0) - ms
if l[1] and l[1] ~= '' and l[1] ~= ARGV[1] and left > 0 then return {0, l[2], left, l[1]} end
local number = tonumber(l[4] or 0)
if l[1] ~= ARGV[1] or number < tonumber(ARGV[4]) then number = math.max(number + 1, tonumber(ARGV[4])) end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'owner', ARGV[2], 'number', string.format('%.0f', number),
  'expires_ms', string.format('%.0f', ms + ARGV[3]), 'paused', '', 'broken', '')
return {1, number, tonumber(ARGV[3])}
