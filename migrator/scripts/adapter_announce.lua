-- Says that an instance of an application with an adapter is alive, by the server's clock; harmless to repeat.
-- A new instance takes those off that were not seen for a day.
-- KEYS  announcements, a hash of JSON by instance
-- ARGV  instance, its JSON without the closing brace
-- Reply unix ms
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
if redis.call('HSET', KEYS[1], ARGV[1], string.format('%s,"last_seen":%.0f}', ARGV[2], ms)) == 1 then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local seen = tonumber(string.match(all[i + 1], '"last_seen":(%d+)') or 0)
    if seen < ms - 86400000 then redis.call('HDEL', KEYS[1], all[i]) end
  end
end
return ms
