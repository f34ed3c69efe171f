-- uses: expiry value fields
-- Reads both shapes of each record in one step: two separate reads of a hot record differ.
-- KEYS  marker, then old and new of each record
-- ARGV  old kind, new kind; the elements and the bytes of what may be read whole
-- Reply {phase, epoch}, then a record: {type, expiry in ms, items, 1 if a field has a TTL} of the old, {…} of the new, where it is 0;
--       no items if of another type; `too-large` for a type, and no items, of what is larger than that
local m = redis.call('HMGET', KEYS[1], 'phase', 'epoch')
local out = {{m[1] or '', m[2] or ''}}
local function too_large(key, kind)
  local count = redis.call(COUNT[kind], key)
  if kind == 'string' then return count > tonumber(ARGV[4]) end
  if count > tonumber(ARGV[3]) then return true end
  local used = redis.pcall('MEMORY', 'USAGE', key, 'SAMPLES', 5) -- not every user may ask that
  return type(used) == 'number' and used > tonumber(ARGV[4])
end
local function side(key, kind, is_old)
  local is = redis.call('TYPE', key).ok
  if is == kind and too_large(key, kind) then return {'too-large', expiry(key), {}, 0} end
  return {is, expiry(key), is == kind and read(key, kind) or {}, is_old and is == 'hash' and kind == is and mortal(key) and 1 or 0}
end
for k = 2, #KEYS, 2 do
  out[#out + 1] = side(KEYS[k], ARGV[1], true)
  out[#out + 1] = side(KEYS[k + 1], ARGV[2])
end
return out
