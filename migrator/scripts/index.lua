-- uses: guard value
-- Repairs membership of an index, if the record is still what the caller mapped. Record and index share the slot.
-- KEYS  marker, record, index
-- ARGV  guard (4), record kind, member, "add" | "remove", score ("now" for this moment, unix seconds), n, n items
-- Reply 1 repaired · 0 nothing to do · 3 the record changed; or the guard's
local refused = guard()
if refused then return refused end

local n = tonumber(ARGV[9])
if redis.call('TYPE', KEYS[2]).ok ~= ARGV[5] or not same(KEYS[2], ARGV[5], 10, n) then return 3 end
if ARGV[7] == 'remove' then return redis.call('ZREM', KEYS[3], ARGV[6]) end
local score = ARGV[8]
if score == 'now' then score = redis.call('TIME')[1] end
return redis.call('ZADD', KEYS[3], 'NX', score, ARGV[6])
