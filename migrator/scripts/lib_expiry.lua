-- Absolute expiry in ms: -2 no key, -1 no expiry. PEXPIRETIME is Redis 7; before it, the time and PTTL of one script.
local function expiry(key)
  local at = redis.pcall('PEXPIRETIME', key)
  if type(at) == 'number' then return at end
  local left = redis.call('PTTL', key)
  if left < 0 then return left end
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000) + left
end

-- Gives `key` the expiry `at` of its truth, PERSIST included; true if it had another one.
-- Two ms are no difference: before Redis 7 an expiry can be read only that exactly.
local function set_expiry(key, at)
  local had = expiry(key)
  if math.abs(had - at) <= 2 and (had == -1) == (at == -1) then return false end
  -- %.0f: Lua's own text of a number has 14 digits, an absolute ms has 13 now but may be far away.
  if at == -1 then redis.call('PERSIST', key) else redis.call('PEXPIREAT', key, string.format('%.0f', at)) end
  return true
end
