-- uses: guard member
-- Removes members of the copy whose member in the truth is gone.
-- KEYS  marker, truth, copy
-- ARGV  guard (4), truth kind, copy kind, then name in the truth, name in the copy (≤ 1000 of each)
-- Reply the number removed; or the guard's
local refused = guard()
if refused then return refused end

local truth, copy, kind, kind2 = KEYS[2], KEYS[3], ARGV[5], ARGV[6]
local names, gone = {}, {}
for i = 7, #ARGV, 2 do names[#names + 1] = ARGV[i] end
local is = redis.call('TYPE', truth).ok
if is ~= kind and is ~= 'none' then return 0 end
local there = is == kind and ask(truth, kind, names) or {}
for j = 1, #names do
  if not there[j] then gone[#gone + 1] = ARGV[6 + 2 * j] end
end
if #gone == 0 then return 0 end
return redis.call(REMOVE[kind2], copy, unpack(gone))
