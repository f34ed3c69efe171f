-- uses: adapter moment jobs
-- Removes a job in every shape that the phase wants written, and from both indexes.
-- KEYS  marker, queue, running, aside, the job's by layout
-- ARGV  those of lib_adapter, the job's id
-- Reply {"ok", phase, epoch, "done" | "none" | "unmoved"} · {"type", what it is}; or lib_adapter's
local r, phase, epoch = record(JOB, foreign)
if not r then return phase end

local type = r.type
if type == 'none' and r.left then return {'ok', phase, epoch, 'unmoved'} end
redis.call('UNLINK', r.truth)
if r.copy then redis.call('UNLINK', r.copy) end
follow(ARGV[6], '', '', '', '')
redis.call('HDEL', ASIDE, ARGV[6])
return {'ok', phase, epoch, type == 'none' and 'none' or 'done'}
