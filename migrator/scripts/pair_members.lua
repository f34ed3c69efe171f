-- uses: expiry member fields
-- Reads members of both shapes in one step.
-- KEYS  marker, old, new
-- ARGV  old kind, new kind, number of old names, old names, new names
-- Reply {phase, epoch}, {old type, expiry in ms}, {new type, expiry}, old values, new values; a value is false if absent;
--       then 1 for each old field that has a TTL of its own
local m = redis.call('HMGET', KEYS[1], 'phase', 'epoch')
local n = tonumber(ARGV[3])
local function side(key, kind, first, last)
  local names = {}
  for i = first, last do names[#names + 1] = ARGV[i] end
  local is = redis.call('TYPE', key).ok
  local values = #names > 0 and is == kind and ask(key, kind, names) or {}
  for i = 1, #names do values[i] = values[i] or false end
  return {is, expiry(key)}, values
end
local old, old_values = side(KEYS[2], ARGV[1], 4, 3 + n)
local new, new_values = side(KEYS[3], ARGV[2], 4 + n, #ARGV)
local mortal = {}
if n > 0 and ARGV[1] == 'hash' and old[1] == 'hash' then
  local has = field_ttls(KEYS[2], {unpack(ARGV, 4, 3 + n)})
  for i = 1, n do mortal[i] = has[i] and 1 or 0 end
end
return {{m[1] or '', m[2] or ''}, old, new, old_values, new_values, mortal}
