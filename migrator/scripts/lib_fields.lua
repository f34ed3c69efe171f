-- Field TTLs: true for each field that has one. Servers without them do not know the command.
local function field_ttls(key, fields)
  local at = redis.pcall('HPEXPIRETIME', key, 'FIELDS', #fields, unpack(fields))
  local has = {}
  if at.err then return has end
  for i = 1, #fields do has[i] = at[i] > 0 end
  return has
end

-- Whether any field of a hash has one.
local function mortal(key)
  local fields = redis.call('HKEYS', key)
  for i = 1, #fields, 4000 do
    for _, has in pairs(field_ttls(key, {unpack(fields, i, math.min(i + 3999, #fields))})) do
      if has then return true end
    end
  end
  return false
end
