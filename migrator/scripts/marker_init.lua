-- Creates a marker that is missing, in the phase the ledger states. Harmless to repeat.
-- KEYS  marker
-- ARGV  phase, epoch, fence number, fence token, mapping checksum
-- Reply 1 created · 0 was there
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'format', '1', 'phase', ARGV[1], 'epoch', ARGV[2], 'fence', ARGV[3],
  'token', ARGV[4], 'checksum', ARGV[5])
return 1
