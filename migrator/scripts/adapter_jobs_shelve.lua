-- uses: adapter value moment jobs
-- Takes a member of an index out of the way, if its job is still as it was read and the epoch is the same.
-- KEYS  marker, queue, running, aside, the job's by layout
-- ARGV  those of lib_adapter, epoch, member, why it leaves the queue | "drop" to take it off those in progress,
--       the score it should have in the queue instead or "", n, n items read (none: there is no job)
-- Reply {"ok", phase, epoch, "done" | "retry"} · {"type", what it is}; or lib_adapter's
local phase, epoch = enter()
if not phase then return epoch end
local wrong = foreign()
if wrong then return wrong end
local r, refused = resolve(phase, JOB)
if not r then return refused end
local n = tonumber(ARGV[10])
local as_read = n == 0 and r.type == 'none' and not r.left or n > 0 and r.type == r.kind and same(r.truth, r.kind, 11, n)
if epoch ~= ARGV[6] or not as_read then return {'ok', phase, epoch, 'retry'} end

if ARGV[8] == 'drop' then
  redis.call('ZREM', RUNNING, ARGV[7])
elseif ARGV[9] == '' then
  shelve(QUEUE, ARGV[7], ARGV[8])
else
  redis.call('ZADD', QUEUE, 'XX', ARGV[9], ARGV[7])
end
return {'ok', phase, epoch, 'done'}
