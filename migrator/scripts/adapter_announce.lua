-- Says that an instance of an application with an adapter is alive, by the server's clock; harmless to repeat.
-- A new instance takes those off that were not seen for an hour, of twenty whichever: where many come and go, all of
-- them are more than a script should look at, and of those that stay one in twenty is so old.
-- KEYS  announcements, a hash of JSON by instance
-- ARGV  instance, its JSON without the closing brace
-- Reply unix ms
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
if redis.call('HSET', KEYS[1], ARGV[1], string.format('%s,"last_seen":%.0f}', ARGV[2], ms)) == 1 then
  local some = redis.call('HRANDFIELD', KEYS[1], 20, 'WITHVALUES')
  for i = 1, #some, 2 do
    local seen = tonumber(string.match(some[i + 1], '"last_seen":(%d+)') or 0)
    if seen < ms - 3600000 then redis.call('HDEL', KEYS[1], some[i]) end
  end
end
return ms
