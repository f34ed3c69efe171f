-- uses: adapter expiry value
-- Replaces one record whole, in every shape that the phase wants written, and gives both the same expiry.
-- KEYS  marker and the record's, by layout
-- ARGV  those of lib_adapter, expiry in unix ms | -1 for none | "keep", n, n items of the old, n2, n2 items of the new
-- Reply {"ok", phase, epoch, "written" | "unmoved"} · {"type", what it is}; or lib_adapter's. "unmoved" wrote nothing
local phase, epoch = enter()
if not phase then return epoch end
local r, refused = resolve(phase)
if not r then return refused end

local type, copy_type = r.type, r.copy_type
if type ~= 'none' and type ~= r.kind then return {'type', type} end
if copy_type ~= 'none' and copy_type ~= r.copy_kind then return {'type', copy_type} end
if type == 'none' and r.left then return {'ok', phase, epoch, 'unmoved'} end

local at = ARGV[6] == 'keep' and math.max(expiry(r.truth), -1) or tonumber(ARGV[6])
local n = tonumber(ARGV[7])
local NAMES = {hash = 'HKEYS', set = 'SMEMBERS', zset = 'ZRANGE'}
local REMOVE = {hash = 'HDEL', set = 'SREM', zset = 'ZREM'}

-- Written over, never removed first: in a slot on the move a script cannot write a key that it has just removed.
local function replace(key, kind, first, count)
  local length = kind == 'list' and redis.call('LLEN', key)
  local had = NAMES[kind] and redis.call(NAMES[kind], key, unpack(kind == 'zset' and {0, -1} or {})) or {}
  put(key, kind, first, count)
  if length then redis.call('LTRIM', key, length, -1) end
  local keep, gone = {}, {}
  for i = first, first + count - 1, kind == 'set' and 1 or 2 do keep[ARGV[i]] = true end
  for _, name in ipairs(had) do if not keep[name] then gone[#gone + 1] = name end end
  for i = 1, #gone, STEP do redis.call(REMOVE[kind], key, unpack(gone, i, math.min(i + STEP - 1, #gone))) end
  if at == -1 then redis.call('PERSIST', key) else redis.call('PEXPIREAT', key, string.format('%.0f', at)) end
end
local function shape(key, kind, new)
  if new then replace(key, kind, 9 + n, tonumber(ARGV[8 + n])) else replace(key, kind, 8, n) end
end
shape(r.truth, r.kind, r.new)
if r.copy then shape(r.copy, r.copy_kind, not r.new) end
return {'ok', phase, epoch, 'written'}
