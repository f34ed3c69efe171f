-- uses: guard
-- Removes copies that have no truth any more. A key of another type is no copy, and stays.
-- KEYS  marker, then truth and copy of each record
-- ARGV  guard (4), copy kind
-- Reply 1 removed or 0 kept, a record; or the guard's
local refused = guard()
if refused then return refused end

local done = {}
for k = 2, #KEYS, 2 do
  local is_copy = redis.call('TYPE', KEYS[k + 1]).ok == ARGV[5]
  done[#done + 1] = is_copy and redis.call('EXISTS', KEYS[k]) == 0 and redis.call('UNLINK', KEYS[k + 1]) or 0
end
return done
