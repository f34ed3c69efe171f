-- Raises the fence of one marker; it only goes up. Harmless to repeat.
-- KEYS  marker
-- ARGV  fence number, fence token
-- Reply {"ok"} · {"no-marker"} · {"fenced", number, token} if the fence is as high already, by somebody else
local m = redis.call('HMGET', KEYS[1], 'phase', 'fence', 'token')
if not m[1] then return {'no-marker'} end
if m[2] == ARGV[1] and m[3] == ARGV[2] then return {'ok'} end
if tonumber(m[2] or 0) >= tonumber(ARGV[1]) then return {'fenced', m[2], m[3]} end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'token', ARGV[2])
return {'ok'}
