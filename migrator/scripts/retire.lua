-- uses: guard
-- Contract: takes the old shape of each record out of the way, once the new one is there.
-- KEYS  marker, then of each record: old key, new key (staged, where both shapes have one name), retired name
-- ARGV  guard (4), old kind, new kind, mode "swap" | "key" | "members", then "1" a record that is accepted as it is
-- Reply a code a record: 1 retired · 2 done before · 3 unmoved, left · 4 the retired name is taken, left
--       · 5 another type, left; or the guard's
local refused = guard()
if refused then return refused end

local kind, kind2, mode, codes = ARGV[5], ARGV[6], ARGV[7], {}
for k = 2, #KEYS, 3 do
  local old, new, retired = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local accepted = ARGV[8 + (k - 2) / 3] == '1'
  local is, new_is = redis.call('TYPE', old).ok, redis.call('TYPE', new).ok
  local code = 1
  if is == kind then
    if redis.call('EXISTS', retired) == 1 then code = 4
    elseif mode ~= 'members' and new_is ~= kind2 and not accepted then code = 3
    else redis.call('RENAME', old, retired) end
  elseif is == 'none' then code = 2
  elseif mode == 'swap' and is == kind2 and new_is == 'none' then code = 2
  else code = 5 end
  -- The new record takes the final name in the same step; where the old one is gone, the new one is the record.
  if mode == 'swap' and (code == 1 or is == 'none') and new_is == kind2 then
    redis.call('RENAME', new, old)
    code = 1
  end
  codes[#codes + 1] = code
end
return codes
