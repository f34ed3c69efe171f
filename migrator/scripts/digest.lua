-- uses: expiry
-- Names what keys hold without sending it: two servers of one version that give the same for a key hold the same there.
-- KEYS  any keys
-- ARGV  how many elements (bytes, of a string) a value may have to be named whole
-- Reply a key: {type, expiry in ms, elements, SHA-1 of the value as DUMP writes it, or nothing where it is larger}
local count = {string = 'STRLEN', hash = 'HLEN', list = 'LLEN', set = 'SCARD', zset = 'ZCARD'}
local out = {}
for i, key in ipairs(KEYS) do
  local is = redis.call('TYPE', key).ok
  local size = count[is] and redis.call(count[is], key) or 0
  local whole = is ~= 'none' and size <= tonumber(ARGV[1])
  out[i] = {is, expiry(key), size, whole and redis.sha1hex(redis.call('DUMP', key)) or ''}
end
return out
