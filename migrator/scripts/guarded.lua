-- uses: guard
-- Runs plain commands on keys of one slot, if the marker is as planned; a RENAME only if its key is there.
-- KEYS  marker, then every key the commands name
-- ARGV  guard (4), then a command: number of words, words
-- Reply the replies of the commands; or {"no-marker"}, {"fenced", …}, {"phase", …}
local refused = guard()
if refused then return refused end

local out, i = {}, 5
while i <= #ARGV do
  local n = tonumber(ARGV[i])
  -- What is to be renamed may have expired since it was found.
  if ARGV[i + 1] ~= 'RENAME' or redis.call('EXISTS', ARGV[i + 2]) == 1 then
    out[#out + 1] = redis.call(unpack(ARGV, i + 1, i + n))
  end
  i = i + n + 1
end
return {'ok', out}
