-- uses: adapter
-- Removes one record, in every shape that the phase wants written.
-- KEYS  marker and the record's, by layout
-- ARGV  those of lib_adapter
-- Reply {"ok", phase, epoch, "removed" | "none" | "unmoved"} · {"type", what it is}; or lib_adapter's
local r, phase, epoch = record()
if not r then return phase end

local type = r.type
if type == 'none' and r.left then return {'ok', phase, epoch, 'unmoved'} end
redis.call('UNLINK', r.truth)
if r.copy then redis.call('UNLINK', r.copy) end
return {'ok', phase, epoch, type == 'none' and 'none' or 'removed'}
