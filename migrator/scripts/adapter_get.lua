-- uses: adapter expiry value
-- Reads one record whole from the shape that is the truth.
-- KEYS  marker and the record's, by layout
-- ARGV  those of lib_adapter
-- Reply {"ok", phase, epoch, "old" | "new", expiry in unix ms or -1, items} · {"ok", phase, epoch, "none" | "unmoved"}
--       · {"type", what it is}; or lib_adapter's
local phase, epoch = enter()
if not phase then return epoch end
local r, refused = resolve(phase)
if not r then return refused end

local type = r.type
if type == 'none' then return {'ok', phase, epoch, r.left and 'unmoved' or 'none'} end
if type ~= r.kind then return {'type', type} end
return {'ok', phase, epoch, r.new and 'new' or 'old', expiry(r.truth), read(r.truth, r.kind)}
