-- Changes one marker by compare-and-set from the exact previous (phase, epoch). Harmless to repeat.
-- KEYS  marker
-- ARGV  fence number, fence token, from phase, from epoch, to phase, to epoch, mapping checksum ("" for none)
-- Reply {"ok"} · {"no-marker"} · {"fenced", number, token} · {"phase", phase, epoch}
local m = redis.call('HMGET', KEYS[1], 'phase', 'epoch', 'fence', 'token')
if not m[1] then return {'no-marker'} end
if m[3] ~= ARGV[1] or m[4] ~= ARGV[2] then return {'fenced', m[3], m[4]} end
local from = m[1] == ARGV[3] and m[2] == ARGV[4]
local there = m[1] == ARGV[5] and m[2] == ARGV[6]
if not from and not there then return {'phase', m[1], m[2]} end
redis.call('HSET', KEYS[1], 'phase', ARGV[5], 'epoch', ARGV[6], 'checksum', ARGV[7])
return {'ok'}
