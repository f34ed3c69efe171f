-- uses: guard
-- Removes copies that have no truth any more.
-- KEYS  marker, then truth and copy of each record
-- ARGV  guard (4)
-- Reply 1 removed or 0 kept, a record; or the guard's
local refused = guard()
if refused then return refused end

local done = {}
for k = 2, #KEYS, 2 do
  done[#done + 1] = redis.call('EXISTS', KEYS[k]) == 0 and redis.call('UNLINK', KEYS[k + 1]) or 0
end
return done
