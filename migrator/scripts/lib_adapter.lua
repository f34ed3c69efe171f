-- What every script of an adapter begins with. Its own ARGV start at 6.
-- KEYS  marker, then by layout: "old" old key · "both" old, new · "last" old, new, retired name · "new" the new key;
--       where both shapes have one name, `new` is the staged name in "both", "last" and the final one in "new"
-- ARGV  layout, mapping checksum, mode "swap" | "key" | "members", old kind, new kind
-- enter(): phase and epoch; or nil and the reply that refuses: {"no-marker"} · {"newer", format, phase} · {"closed"}
--       · {"mapping"} · {"layout", the one that the phase needs}
local LAYOUT = {pending = 'old', expanded = 'both', backfilled = 'both', verified = 'both', switched = 'both',
  reverting = 'both', contracted = 'last', closed = 'none'}
local function enter()
  local m = redis.call('HMGET', KEYS[1], 'format', 'phase', 'epoch', 'checksum')
  local phase, layout, checksum = m[2], LAYOUT[m[2]], m[4] or ''
  if not phase then return nil, {'no-marker'} end
  if m[1] ~= '1' or not layout then return nil, {'newer', m[1] or '', phase} end
  if phase == 'closed' then return nil, {'closed'} end
  if checksum ~= '' and checksum ~= ARGV[2] then return nil, {'mapping'} end
  if checksum == '' and phase == 'contracted' then layout = 'new' end
  if layout ~= ARGV[1] then return nil, {'layout', layout} end
  return phase, m[3]
end
local function is(key) return redis.call('TYPE', key).ok end

-- resolve(phase, at): which key is the truth, which its copy; names by TYPE, retired or swapped as the phase wants it.
-- `at`: where the record's keys begin, if not at KEYS[2].
-- A table: truth, its type, the kind it should be, new (the shape), copy, copy_type, copy_kind, left (an old key that
-- stays if the truth is missing); or nil and the reply {"two"} where both names hold a new record.
local function resolve(phase, at)
  at = at or 2
  local layout, mode, kind, kind2 = ARGV[1], ARGV[3], ARGV[4], ARGV[5]
  local both = layout == 'both' or layout == 'last'
  local old, new, retired = KEYS[at], both and KEYS[at + 1], KEYS[at + 2]
  local function only(key, type, left)
    return {truth = key, type = type, kind = kind2, new = true, copy_type = 'none', left = left}
  end
  local was, now = is(old), both and is(new) or 'none'
  if layout == 'new' then return only(old, was) end
  if mode == 'swap' and was == kind2 then
    if now ~= 'none' then return nil, {'two'} end
    if phase ~= 'reverting' then return only(old, was) end
    redis.call('RENAME', old, new)
    was, now = now, was
  end
  if phase == 'switched' or phase == 'reverting' then
    return {truth = new, type = now, kind = kind2, new = true, copy = old, copy_type = was, copy_kind = kind,
      left = was == kind and old}
  elseif layout ~= 'last' then
    return {truth = old, type = was, kind = kind, copy = new, copy_type = now, copy_kind = kind2}
  end
  local gone = was == kind and (now == kind2 or (mode == 'members' and now == 'none')) and is(retired) == 'none'
  if gone then redis.call('RENAME', old, retired) end
  if mode ~= 'swap' or (was == kind and not gone) then return only(new, now, was == kind and not gone and old) end
  if now ~= kind2 or not (gone or was == 'none') then return only(old, was) end
  redis.call('RENAME', new, old)
  return only(old, now)
end

-- record(at, before): `r`, phase and epoch of a record whose keys are all of the types they should be; or nil and the
-- reply that refuses: enter's, that of `before` (asked before a name can change), resolve's, {"type", what it is}.
local function record(at, before)
  local phase, epoch = enter()
  if not phase then return nil, epoch end
  local wrong = before and before()
  if wrong then return nil, wrong end
  local r, refused = resolve(phase, at)
  if not r then return nil, refused end
  if r.type ~= 'none' and r.type ~= r.kind then return nil, {'type', r.type} end
  if r.copy_type ~= 'none' and r.copy_type ~= r.copy_kind then return nil, {'type', r.copy_type} end
  return r, phase, epoch
end
