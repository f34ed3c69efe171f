-- uses: adapter expiry value replace moment jobs
-- The second step of an operation: writes a job whole, in every shape that the phase wants written, if it is still as
-- it was read and the epoch is the same. The expiry stays.
-- KEYS  marker, queue, running, aside, the job's by layout
-- ARGV  those of lib_adapter, epoch, id, the queue's member that was taken or "", new queue score or "", new running
--       score or "", status before, n, n items read (none to create), n, n items of the old, n, n items of the new
-- Reply {"ok", phase, epoch, "done" | "retry" | "unmoved"} · {"type", what it is}; or lib_adapter's
local r, phase, epoch = record(JOB, foreign)
if not r then return phase end

local type = r.type
if epoch ~= ARGV[6] then return {'ok', phase, epoch, 'retry'} end
if type == 'none' and r.left then return {'ok', phase, epoch, 'unmoved'} end
local n = tonumber(ARGV[12])
local as_read = n == 0 and type == 'none' or n > 0 and type ~= 'none' and same(r.truth, r.kind, 13, n)
local there = ARGV[8] == '' or redis.call('ZSCORE', QUEUE, ARGV[8])
if not (as_read and there) then return {'ok', phase, epoch, 'retry'} end

local at, old = math.max(expiry(r.truth), -1), 13 + n
local new = old + 1 + tonumber(ARGV[old])
local function shape(key, kind, is_new)
  local first = is_new and new or old
  replace(key, kind, at, first + 1, tonumber(ARGV[first]))
end
shape(r.truth, r.kind, r.new)
if r.copy then shape(r.copy, r.copy_kind, not r.new) end
follow(ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11])
return {'ok', phase, epoch, 'done'}
