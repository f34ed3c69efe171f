-- uses: adapter
-- Removes one record, in every shape that the phase wants written.
-- KEYS  marker and the record's, by layout
-- ARGV  those of lib_adapter
-- Reply {"ok", phase, epoch, "removed" | "none" | "unmoved"} · {"type", what it is}; or lib_adapter's
local phase, epoch = enter()
if not phase then return epoch end
local r, refused = resolve(phase)
if not r then return refused end

local type, copy_type = r.type, r.copy_type
if type ~= 'none' and type ~= r.kind then return {'type', type} end
if copy_type ~= 'none' and copy_type ~= r.copy_kind then return {'type', copy_type} end
if type == 'none' and r.left then return {'ok', phase, epoch, 'unmoved'} end
redis.call('UNLINK', r.truth)
if r.copy then redis.call('UNLINK', r.copy) end
return {'ok', phase, epoch, type == 'none' and 'none' or 'removed'}
