-- uses: adapter moment jobs jobs_do
-- Claims the heads of the queue that are due, where only hashes are left; reads the first one elsewhere. What cannot be
-- claimed is set aside, moved to when it is due, or, if it is unmoved, left where it is and passed over.
-- KEYS  marker, queue, running, aside, then the keys of each candidate that has a job's name, by layout
-- ARGV  those of lib_adapter, the worker, how many to claim, how many heads to look at, how many to pass over,
--       how many candidates have a job's name; then these and the others, as they were read
-- Reply {"ok", phase, epoch, how many heads were dealt with, how many of them stay, read: {member, "old" | "new",
--       items, unix µs} or false, how many were not, these, then of each job claimed its fields}; {"type", what it is};
--       or lib_adapter's. A table within a table costs as much as a check.
local phase, epoch = enter()
if not phase then return epoch end
local wrong = other(RUNNING, 'zset')
if wrong then return wrong end

local many, named, candidates = tonumber(ARGV[7]), tonumber(ARGV[10]), {}
for i = 11, #ARGV do candidates[ARGV[i]] = i - 10 end
local each = (#KEYS - JOB + 1) / named -- keys a job
-- An operation, word by word that of jobs/rules.py: to send it with every call would cost more than the checks do.
local op = {worker = '', statuses = ',100,200,', version = '', due = true, first = 1, last = 8, final = 1, finals = 0,
  words = {'Status', '=300', 'WorkerId', '=' .. ARGV[6], 'StartedAt', '@now', 'StartedAtUnix', '@unix'}}

local due = string.format('%.6f', MICROS / 1000000)
local heads = redis.pcall('ZRANGEBYSCORE', QUEUE, '-inf', due, 'LIMIT', ARGV[9], ARGV[8])
if heads.err then return other(QUEUE, 'zset') or heads end
local claimed, stays, read_, n = {}, 0, false, 0

-- The id in a guid, however it is written.
local function id_of(text)
  if #text == 36 then return string.lower(text) end
  local hex = string.lower(string.gsub(text, '[^%x]', ''))
  return string.gsub(hex, '^(%x%x%x%x%x%x%x%x)(%x%x%x%x)(%x%x%x%x)(%x%x%x%x)', '%1-%2-%3-%4-')
end

-- Why a head whose keys are of the wrong kind, or not there, cannot be claimed.
local function unfit(r, refused)
  if not r then return refused[1] end
  if r.copy_type ~= 'none' and r.copy_type ~= r.copy_kind then return 'type' end
  if r.type == 'none' then return r.left and 'UNMOVED' or 'ghost' end
  if r.type ~= r.kind then return 'type' end
end

for _, text in ipairs(heads) do
  local number = candidates[text]
  if not number or #claimed >= many then break end
  local why, job = 'junk', nil
  if number <= named then
    local r, refused = resolve(phase, JOB + (number - 1) * each)
    why = unfit(r, refused)
    if not why and (r.copy or not r.new) then
      local items = r.kind == 'hash' and redis.call('HGETALL', r.truth) or {redis.call('GET', r.truth)}
      read_ = {text, r.new and 'new' or 'old', items, string.format('%.0f', MICROS)}
      break
    elseif not why then
      why, job = perform(op, r.truth, id_of(text), text)
      if why == 'done' then claimed[#claimed + 1] = redis.call('HGETALL', r.truth) end
    end
  end
  if why == 'UNMOVED' then
    stays = stays + 1
  elseif why == 'RETRY_DELAY' then
    -- Its score says it is due and the job says it is not: the index is wrong.
    redis.call('ZADD', QUEUE, score_of(job.due, job.due_fraction), text)
    if redis.call('ZSCORE', QUEUE, text) + 0 <= due + 0 then stays = stays + 1 end
  elseif why ~= 'done' then
    wrong = other(ASIDE, 'hash')
    if wrong and n == 0 then return wrong elseif wrong then break end
    shelve(QUEUE, text, why)
  end
  n = n + 1
end
local reply = {'ok', phase, epoch, n, stays, read_, #heads - n, unpack(heads, n + 1)}
for _, fields in ipairs(claimed) do reply[#reply + 1] = fields end
return reply
