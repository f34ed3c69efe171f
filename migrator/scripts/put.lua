-- uses: guard value
-- Puts a saved record in place, whole, where nothing is.
-- KEYS  marker, the record's key
-- ARGV  guard (4), kind, expiry in unix ms | -1 for none, items
-- Reply 1 put · 0 something is there; or the guard's
local refused = guard()
if refused then return refused end

if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
put(KEYS[2], ARGV[5], 7, #ARGV - 6)
if ARGV[6] ~= '-1' then redis.call('PEXPIREAT', KEYS[2], ARGV[6]) end
return 1
