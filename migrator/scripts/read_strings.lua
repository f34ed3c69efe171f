-- Reads old records that are strings, a batch in one reply: a transaction that watches them writes their new shapes.
-- KEYS  marker, then old and new of each record
-- ARGV  bytes of a value to be read at most, then fields of the marker
-- Reply {the marker's fields, how many of the new are there, values (nil: another type), expiries in unix ms (-1: none, -2: no key,
--       -3: one that this server cannot tell exactly, before Redis 7)}
local marker = redis.call('HMGET', KEYS[1], unpack(ARGV, 2))
local there, values, expiries = 0, {}, {}
local exact = type(redis.pcall('PEXPIRETIME', KEYS[1])) == 'number'
for k = 2, #KEYS, 2 do
  local value = redis.pcall('GETRANGE', KEYS[k], 0, ARGV[1] - 1)
  values[#values + 1] = type(value) == 'string' and value
  if exact then
    expiries[#expiries + 1] = redis.call('PEXPIRETIME', KEYS[k])
  else
    local left = redis.call('PTTL', KEYS[k])
    expiries[#expiries + 1] = left < 0 and left or -3
  end
  there = there + redis.call('EXISTS', KEYS[k + 1])
end
return {marker, there, values, expiries}
