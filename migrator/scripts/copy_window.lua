-- uses: guard expiry
-- Adds members of a window to a copy that was proved empty at `expand`, each only if it is not there: then an adapter
-- wrote it. Nothing is compared, so nothing is done if an adapter has deleted a member since the window began.
-- KEYS  marker, truth, copy
-- ARGV  guard (4), truth kind, copy kind, the marker's count of deletions when the window began, then the words that add:
--       score and member (zset) or member (set), at most 4000
-- Reply how many were added · {"deletes"} · {"type"}; or the guard's
local refused = guard()
if refused then return refused end
if (redis.call('HGET', KEYS[1], 'deletes') or '0') ~= ARGV[7] then return {'deletes'} end
local is, copy_is = redis.call('TYPE', KEYS[2]).ok, redis.call('TYPE', KEYS[3]).ok
-- Of another type, or gone.
if is ~= ARGV[5] or (copy_is ~= 'none' and copy_is ~= ARGV[6]) then return {'type'} end
local added = 0
if #ARGV < 8 then return added end
if ARGV[6] == 'zset' then
  added = redis.call('ZADD', KEYS[3], 'NX', unpack(ARGV, 8))
else
  added = redis.call('SADD', KEYS[3], unpack(ARGV, 8))
end
set_expiry(KEYS[3], expiry(KEYS[2]))
return added
