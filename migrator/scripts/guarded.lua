-- uses: guard
-- Runs plain commands on keys of one slot, if the marker is as planned; a RENAMENX only if its key is there.
-- KEYS  marker, then every key the commands name
-- ARGV  guard (4), then a command: number of words, words
-- Reply {"ok", the replies of the commands, nil of what was not run}; or {"no-marker"}, {"fenced", …}, {"phase", …}
local refused = guard()
if refused then return refused end

local out, i = {}, 5
while i <= #ARGV do
  local n = tonumber(ARGV[i])
  -- What is to be renamed may have expired since it was found.
  local there = ARGV[i + 1] ~= 'RENAMENX' or redis.call('EXISTS', ARGV[i + 2]) == 1
  out[#out + 1] = there and redis.call(unpack(ARGV, i + 1, i + n))
  i = i + n + 1
end
return {'ok', out}
