-- uses: guard expiry value replace fields
-- Makes each copy follow its truth, if the truth is still what the caller mapped (compare-and-set), and the copy still
-- what the caller saw, where that is said.
-- KEYS  marker, then truth and copy of each record
-- ARGV  guard (4), then a record: truth kind, n, n items; copy kind, n, n items; n, n items of the copy as it was seen
--       (0 where there was none, -1 where it does not matter)
-- Reply a code a record: 1 moved · 2 unchanged · 3 one of them changed · 4 vanished · 5 truth of another type
--       · 6 copy of another type · 7 a field with a TTL; or the guard's
local refused = guard()
if refused then return refused end

local codes, at = {}, 5
for k = 2, #KEYS, 2 do
  local truth, copy = KEYS[k], KEYS[k + 1]
  local kind, n, first = ARGV[at], tonumber(ARGV[at + 1]), at + 2
  local kind2, n2, first2 = ARGV[first + n], tonumber(ARGV[first + n + 1]), first + n + 2
  local first3, n3 = first2 + n2 + 1, tonumber(ARGV[first2 + n2])
  at = first3 + math.max(n3, 0)
  local is, copy_is = redis.call('TYPE', truth).ok, redis.call('TYPE', copy).ok
  local code
  if is == 'none' then code = 4
  elseif is ~= kind then code = 5
  elseif copy_is ~= 'none' and copy_is ~= kind2 then code = 6
  elseif not same(truth, kind, first, n) then code = 3
  elseif n3 == 0 and copy_is ~= 'none' then code = 3
  elseif n3 > 0 and not (copy_is == kind2 and same(copy, kind2, first3, n3)) then code = 3
  elseif kind == 'hash' and mortal(truth) then code = 7
  else
    local expires = expiry(truth)
    code = 2
    if (n2 == 0 and copy_is ~= 'none') or (n2 > 0 and not (copy_is == kind2 and same(copy, kind2, first2, n2))) then
      if n2 == 0 then redis.call('UNLINK', copy) else replace(copy, kind2, expires, first2, n2) end
      code = 1
    end
    if n2 > 0 and set_expiry(copy, expires) then code = 1 end
  end
  codes[#codes + 1] = code
end
return codes
