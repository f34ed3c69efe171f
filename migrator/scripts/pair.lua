-- uses: expiry value
-- Reads both shapes of each record in one step: two separate reads of a hot record differ.
-- KEYS  marker, then old and new of each record
-- ARGV  old kind, new kind
-- Reply {phase, epoch}, then a record: {type, expiry in ms, items} of the old, {…} of the new; no items if of another type
local m = redis.call('HMGET', KEYS[1], 'phase', 'epoch')
local out = {{m[1] or '', m[2] or ''}}
local function side(key, kind)
  local is = redis.call('TYPE', key).ok
  return {is, expiry(key), is == kind and read(key, kind) or {}}
end
for k = 2, #KEYS, 2 do
  out[#out + 1] = side(KEYS[k], ARGV[1])
  out[#out + 1] = side(KEYS[k + 1], ARGV[2])
end
return out
