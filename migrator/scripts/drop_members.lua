-- uses: guard member
-- Removes members of the copy that no member of the truth becomes: it is gone, or its value makes another one of it.
-- KEYS  marker, truth, copy
-- ARGV  guard (4), truth kind, copy kind, then so much a member (≤ 1000): name in the truth, name in the copy,
--       "none" | "left" where that is not what the truth becomes while it has the value that follows
-- Reply the number removed; or the guard's
local refused = guard()
if refused then return refused end

local truth, copy, kind, kind2 = KEYS[2], KEYS[3], ARGV[5], ARGV[6]
local is = redis.call('TYPE', truth).ok
if (is ~= kind and is ~= 'none') or redis.call('TYPE', copy).ok ~= kind2 then return 0 end
local names, gone = {}, {}
for i = 7, #ARGV, 4 do names[#names + 1] = ARGV[i] end
local there = is == kind and ask(truth, kind, names) or {}
for j = 1, #names do
  local i = 3 + 4 * j
  if not there[j] then gone[#gone + 1] = ARGV[i + 1]
  elseif ARGV[i + 2] == 'left' and equal(kind, there[j], ARGV[i + 3]) then gone[#gone + 1] = ARGV[i + 1] end
end
if #gone == 0 then return 0 end
return redis.call(REMOVE[kind2], copy, unpack(gone))
