-- Field TTLs: true for each field that has one. Servers without them do not know the command.
local function field_ttls(key, fields)
  local at = redis.pcall('HPEXPIRETIME', key, 'FIELDS', #fields, unpack(fields))
  local has = {}
  if at.err then return has end
  for i = 1, #fields do has[i] = at[i] > 0 end
  return has
end
