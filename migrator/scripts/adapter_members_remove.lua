-- uses: adapter member
-- Removes members of one collection, in every shape that the phase wants written.
-- KEYS  marker and the collection's, by layout
-- ARGV  those of lib_adapter, then a member: its name in the old, its name in the new (≤ 1000)
-- Reply {"ok", phase, epoch, codes: 1 removed · 0 was not there · 2 unmoved, left} · {"type", what it is};
--       or lib_adapter's
local r, phase, epoch = record()
if not r then return phase end

local type, copy_type = r.type, r.copy_type
if type == 'none' and copy_type ~= 'none' and not r.new then redis.call('UNLINK', r.copy) end

local olds, news, codes = {}, {}, {}
for i = 6, #ARGV, 2 do olds[#olds + 1], news[#news + 1] = ARGV[i], ARGV[i + 1] end
local there = ask(r.truth, r.kind, r.new and news or olds)
local left = r.left and ask(r.left, ARGV[4], olds) or {}
local truth, copy = {}, {}
for j = 1, #olds do
  codes[j] = (there[j] and 1) or (left[j] and 2) or 0
  if codes[j] ~= 2 then
    truth[#truth + 1], copy[#copy + 1] = r.new and news[j] or olds[j], r.new and olds[j] or news[j]
  end
end
if #truth > 0 then
  redis.call(REMOVE[r.kind], r.truth, unpack(truth))
  if r.copy then redis.call(REMOVE[r.copy_kind], r.copy, unpack(copy)) end
  if phase == 'expanded' then redis.call('HINCRBY', KEYS[1], 'deletes', 1) end
end
return {'ok', phase, epoch, codes}
