-- uses: adapter value moment jobs jobs_do
-- One operation on one job, where only its hash is left; reads it elsewhere, for the caller to change and commit.
-- KEYS  marker, queue, running, aside, the job's by layout
-- ARGV  those of lib_adapter, the job's id, an operation
-- Reply {"ok", phase, epoch, unix µs, word, …}: "done", fields · "read", "old" | "new", items, its running score
--       · a code · "none" · "exists" · "unmoved"; {"type", what it is}; or lib_adapter's
local r, phase, epoch = record(JOB, foreign)
if not r then return phase end

local type, id = r.type, ARGV[6]
local function answer(...) return {'ok', phase, epoch, string.format('%.0f', MICROS), ...} end
if type == 'none' and r.left then return answer('unmoved') end
if r.copy or not r.new then
  local items = type == 'none' and {} or read(r.truth, r.kind)
  return answer('read', r.new and 'new' or 'old', items, redis.call('ZSCORE', RUNNING, id))
end
local op = operation(7)
if op.create and type ~= 'none' then return answer('exists') end
local word = 'none'
if op.create or type ~= 'none' then word = perform(op, r.truth, id, '') end
-- What is not in progress is not stuck: the index was wrong.
if op.stuck and (word == 'none' or word == 'WRONG_STATUS') then redis.call('ZREM', RUNNING, id) end
return answer(word, word == 'done' and redis.call('HGETALL', r.truth) or false)
