-- uses: guard
-- Removes keys of one slot, if the marker is as planned.
-- KEYS  marker, then the keys
-- ARGV  guard (4)
-- Reply {"ok", how many were there}; or {"no-marker"}, {"fenced", …}, {"phase", …}
local refused = guard()
if refused then return refused end
return {'ok', redis.call('UNLINK', unpack(KEYS, 2))}
