-- uses: adapter expiry member
-- Reads members of one collection from the shape that is the truth.
-- KEYS  marker and the collection's, by layout
-- ARGV  those of lib_adapter, then a member: its name in the old, its name in the new (≤ 1000)
-- Reply {"ok", phase, epoch, "old" | "new", expiry in unix ms, -1 or -2, values: false if absent, 1 if that is unmoved}
--       · {"type", what it is}; or lib_adapter's
local phase, epoch = enter()
if not phase then return epoch end
local r, refused = resolve(phase)
if not r then return refused end

local type = r.type
if type ~= 'none' and type ~= r.kind then return {'type', type} end
local names, olds = {}, {}
for i = 6, #ARGV, 2 do
  olds[#olds + 1] = ARGV[i]
  names[#names + 1] = ARGV[r.new and i + 1 or i]
end
local values = ask(r.truth, r.kind, names)
local left = r.left and ask(r.left, ARGV[4], olds) or {}
for j = 1, #names do
  if not values[j] then values[j] = left[j] and 1 or false end
end
return {'ok', phase, epoch, r.new and 'new' or 'old', expiry(r.truth), values}
