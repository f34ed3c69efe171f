-- uses: guard
-- The way back from contract: where both shapes have one name, the new record goes back to its staged name; a record
-- that was accepted as it is gets its old name again, unless something has it.
-- KEYS  marker, then of each record: old key, new key (staged, where both shapes have one name), retired name
-- ARGV  guard (4), old kind, new kind, mode "swap" | "key" | "members", then "1" a record that is accepted as it is
-- Reply a code a record: 1 revived · 2 nothing to do · 4 the name is taken, left; or the guard's
local refused = guard()
if refused then return refused end

local kind, kind2, mode, codes = ARGV[5], ARGV[6], ARGV[7], {}
for k = 2, #KEYS, 3 do
  local old, new, retired = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local code = 2
  if mode == 'swap' and redis.call('TYPE', old).ok == kind2 then
    code = redis.call('EXISTS', new) == 1 and 4 or 1
    if code == 1 then redis.call('RENAME', old, new) end
  end
  if code ~= 4 and ARGV[8 + (k - 2) / 3] == '1' and redis.call('TYPE', retired).ok == kind then
    code = redis.call('EXISTS', old) == 1 and 4 or 1
    if code == 1 then redis.call('RENAME', retired, old) end
  end
  codes[#codes + 1] = code
end
return codes
