-- uses: guard expiry member fields
-- Makes members of the copy follow those of the truth, each if it is still what the caller mapped, and the copy still
-- what the caller saw, where that is said.
-- KEYS  marker, truth, copy
-- ARGV  guard (4), truth kind, copy kind, 4 | 6, then so much a member (≤ 1000): name, value in the truth; name, value in
--       the copy; with 6 also "none" | "had" as the copy was seen, and the value that it had
-- Reply a code a member: 1 moved · 2 unchanged · 3 one of them changed · 4 vanished · 5 truth of another type · 6 copy of another
--       type · 7 a field with a TTL; or the guard's
local refused = guard()
if refused then return refused end

local WIDTH = tonumber(ARGV[7])
local function as_seen(kind, value, i)
  if WIDTH == 4 then return true end
  if ARGV[i + 4] == 'none' then return not value end
  return equal(kind, value, ARGV[i + 5])
end

local truth, copy, kind, kind2 = KEYS[2], KEYS[3], ARGV[5], ARGV[6]
local is, copy_is = redis.call('TYPE', truth).ok, redis.call('TYPE', copy).ok
local all = (is == 'none' and 4) or (is ~= kind and 5) or (copy_is ~= 'none' and copy_is ~= kind2 and 6)
local codes = {}
if all then
  for i = 8, #ARGV, WIDTH do codes[#codes + 1] = all end
  return codes
end

local expires, names, names2 = expiry(truth), {}, {}
for i = 8, #ARGV, WIDTH do
  names[#names + 1] = ARGV[i]
  names2[#names2 + 1] = ARGV[i + 2]
end
local now, now2, writes = ask(truth, kind, names), ask(copy, kind2, names2), {}
local mortal = kind == 'hash' and field_ttls(truth, names) or {}
for j = 1, #names do
  local i = 8 + WIDTH * (j - 1)
  local code = 2
  if not now[j] then code = 4
  elseif mortal[j] then code = 7
  elseif not equal(kind, now[j], ARGV[i + 1]) or not as_seen(kind2, now2[j], i) then code = 3
  elseif not equal(kind2, now2[j], ARGV[i + 3]) then
    add(writes, kind2, ARGV[i + 2], ARGV[i + 3])
    code = 1
  end
  codes[j] = code
end
if #writes > 0 then redis.call(ADD[kind2], copy, unpack(writes)) end
if redis.call('EXISTS', copy) == 1 then set_expiry(copy, expires) end
return codes
