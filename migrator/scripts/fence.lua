-- Raises the fence of one marker, which only goes up, and tells what the marker says. Harmless to repeat.
-- KEYS  marker
-- ARGV  fence number, fence token
-- Reply {"ok", format, phase, epoch, checksum} · {"no-marker"} · {"fenced", number, token} if the fence is as high already, by somebody else
local m = redis.call('HMGET', KEYS[1], 'phase', 'fence', 'token', 'format', 'epoch', 'checksum')
if not m[1] then return {'no-marker'} end
local state = {'ok', m[4] or '', m[1], m[5] or '0', m[6] or ''}
local mine = m[2] == ARGV[1] and m[3] == ARGV[2]
if not mine and tonumber(m[2] or 0) >= tonumber(ARGV[1]) then return {'fenced', m[2], m[3]} end
-- Written although it may be there: WAIT answers only for what its own connection wrote.
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'token', ARGV[2])
return state
