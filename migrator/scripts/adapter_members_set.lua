-- uses: adapter expiry member
-- Sets members of one collection, in every shape that the phase wants written; the copy's expiry follows the truth's.
-- KEYS  marker and the collection's, by layout
-- ARGV  those of lib_adapter, then a member: name, value in the old; name, value in the new (≤ 1000)
-- Reply {"ok", phase, epoch, codes: 1 written · 0 unmoved, not written} · {"type", what it is}; or lib_adapter's
local r, phase, epoch = record()
if not r then return phase end

local type, copy_type = r.type, r.copy_type
-- A copy left behind by a collection that is gone: its members would come back. An old one after the switch is unmoved.
if type == 'none' and copy_type ~= 'none' and not r.new then redis.call('UNLINK', r.copy) end
-- What a window has read of it is of another life.
if type == 'none' and phase == 'expanded' then redis.call('HINCRBY', KEYS[1], 'deletes', 1) end

local there, left = {}, {}
if r.left then
  local olds, news = {}, {}
  for i = 6, #ARGV, 4 do olds[#olds + 1], news[#news + 1] = ARGV[i], ARGV[i + 2] end
  there, left = ask(r.truth, r.kind, news), ask(r.left, ARGV[4], olds)
end
local truth, copy, codes = {}, {}, {}
for i = 6, #ARGV, 4 do
  local j = #codes + 1
  codes[j] = (left[j] and not there[j]) and 0 or 1
  if codes[j] == 1 then
    local at, copy_at = r.new and i + 2 or i, r.new and i or i + 2
    add(truth, r.kind, ARGV[at], ARGV[at + 1])
    if r.copy then add(copy, r.copy_kind, ARGV[copy_at], ARGV[copy_at + 1]) end
  end
end
if #truth > 0 then redis.call(ADD[r.kind], r.truth, unpack(truth)) end
if #copy > 0 then
  redis.call(ADD[r.copy_kind], r.copy, unpack(copy))
  set_expiry(r.copy, expiry(r.truth))
end
return {'ok', phase, epoch, codes}
