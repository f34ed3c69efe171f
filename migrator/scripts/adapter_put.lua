-- uses: adapter expiry value replace
-- Replaces one record whole, in every shape that the phase wants written, and gives both the same expiry.
-- KEYS  marker and the record's, by layout
-- ARGV  those of lib_adapter, expiry in unix ms | -1 for none | "keep", n, n items of the old, n2, n2 items of the new
-- Reply {"ok", phase, epoch, "written" | "unmoved"} · {"type", what it is}; or lib_adapter's. "unmoved" wrote nothing
local r, phase, epoch = record()
if not r then return phase end

local type = r.type
if type == 'none' and r.left then return {'ok', phase, epoch, 'unmoved'} end

local at = ARGV[6] == 'keep' and math.max(expiry(r.truth), -1) or tonumber(ARGV[6])
local n = tonumber(ARGV[7])
local function shape(key, kind, new)
  if new then replace(key, kind, at, 9 + n, tonumber(ARGV[8 + n])) else replace(key, kind, at, 8, n) end
end
shape(r.truth, r.kind, r.new)
if r.copy then shape(r.copy, r.copy_kind, not r.new) end
return {'ok', phase, epoch, 'written'}
