-- uses: adapter
-- Whether an adapter may work, and the layout of keys its calls need.
-- KEYS  marker
-- ARGV  those of lib_adapter
-- Reply {"ok", phase, epoch}; or lib_adapter's
local phase, epoch = enter()
return phase and {'ok', phase, epoch} or epoch
