-- uses: guard
-- Runs plain commands on keys of one slot, if the marker is as planned.
-- KEYS  marker, then every key the commands name
-- ARGV  guard (4), then a command: number of words, words
-- Reply the replies of the commands; or {"no-marker"}, {"fenced", …}, {"phase", …}
local refused = guard()
if refused then return refused end

local out, i = {}, 5
while i <= #ARGV do
  local n = tonumber(ARGV[i])
  out[#out + 1] = redis.call(unpack(ARGV, i + 1, i + n))
  i = i + n + 1
end
return {'ok', out}
