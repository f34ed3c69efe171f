-- Runs plain commands on the tool's own keys, if the caller still holds the lease; renews or releases it.
-- KEYS  lease, then every key the commands name
-- ARGV  fence number, token, lease in ms (0 releases it), then a command: number of words, words
-- Reply {"ok", replies} · {"fenced", number, token}
local l = redis.call('HMGET', KEYS[1], 'number', 'token')
if l[1] ~= ARGV[1] or l[2] ~= ARGV[2] then return {'fenced', l[1] or '', l[2] or ''} end
local out, i = {}, 4
while i <= #ARGV do
  local n = tonumber(ARGV[i])
  out[#out + 1] = redis.call(unpack(ARGV, i + 1, i + n))
  i = i + n + 1
end
if ARGV[3] == '0' then
  redis.call('HSET', KEYS[1], 'token', '', 'owner', '', 'expires_ms', '0')
else
  local now = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'expires_ms', string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[3]))
end
return {'ok', out}
