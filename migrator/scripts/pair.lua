-- uses: expiry value fields
-- Reads both shapes of each record in one step: two separate reads of a hot record differ.
-- KEYS  marker, then old and new of each record
-- ARGV  old kind, new kind
-- Reply {phase, epoch}, then a record: {type, expiry in ms, items, 1 if a field has a TTL} of the old, {…} of the new, where it is 0;
--       no items if of another type
local m = redis.call('HMGET', KEYS[1], 'phase', 'epoch')
local out = {{m[1] or '', m[2] or ''}}
local function side(key, kind, is_old)
  local is = redis.call('TYPE', key).ok
  return {is, expiry(key), is == kind and read(key, kind) or {}, is_old and is == 'hash' and kind == is and mortal(key) and 1 or 0}
end
for k = 2, #KEYS, 2 do
  out[#out + 1] = side(KEYS[k], ARGV[1], true)
  out[#out + 1] = side(KEYS[k + 1], ARGV[2])
end
return out
