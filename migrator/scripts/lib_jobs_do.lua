-- Carries an operation out on a job of which only the hash is left: the twin of migrator/adapters/jobs/rules.py.
-- An operation in ARGV: worker "-" any | "" none | its guid, statuses ",100,200," or "", version or "", "due" or "",
-- stuck for seconds or "", delay in ms, "new" or "", n, n words; n, n words for when no retry is left.
-- Words are fields and values; a value is "=text", "@now", "@unix", "@later", "@next", or for one field "@none".
local function operation(i)
  local last = i + 7 + tonumber(ARGV[i + 7])
  local finals = last + 1 + tonumber(ARGV[last + 1])
  return {words = ARGV, worker = ARGV[i], statuses = ARGV[i + 1], version = ARGV[i + 2], due = ARGV[i + 3] == 'due',
    stuck = tonumber(ARGV[i + 4]), delay = ARGV[i + 5], create = ARGV[i + 6] == 'new', first = i + 8, last = last,
    final = last + 2, finals = finals}
end

local STATUSES = ',100,200,300,400,500,600,'

local function whole(text, default)
  if not text or text == '' then return default end
  if #text > 18 or not (text == '0' or string.match(text, '^%-?[1-9]%d*$')) then return nil end
  return text
end

-- The job as far as an operation looks at it; nil if that cannot be read.
local function look(key, id)
  local had = redis.call('HMGET', key, 'Id', 'Status', 'WorkerId', 'Version', 'RetryCount', 'MaxRetries',
    'RetryDelayUntil')
  local status, delay = had[2] or '', had[7] or ''
  if string.lower(had[1] or '') ~= id or #status ~= 3 or not string.find(STATUSES, status, 1, true) then return nil end
  local job = {Status = status, WorkerId = string.lower(had[3] or ''), Version = whole(had[4], '0'),
    RetryCount = whole(had[5], '0'), MaxRetries = whole(had[6], '3'), RetryDelayUntil = delay}
  if not (job.Version and job.RetryCount and job.MaxRetries) then return nil end
  if delay ~= '' then
    job.due, job.due_fraction = moment(delay)
    if not job.due then return nil end
  end
  return job
end

-- The seed's code for what is in the way, if anything is.
local function barred(op, job, id)
  local worker = job.WorkerId
  if op.worker ~= '-' and worker ~= '' and worker ~= op.worker then return 'ALREADY_ASSIGNED' end
  if op.statuses ~= '' and not string.find(op.statuses, ',' .. job.Status .. ',', 1, true) then return 'WRONG_STATUS' end
  if op.worker ~= '-' and worker ~= op.worker then return 'ALREADY_ASSIGNED' end
  if op.version ~= '' and op.version ~= job.Version then return 'VERSION_CONFLICT' end
  if op.due and job.due and micros_of(job.due, job.due_fraction) > MICROS then return 'RETRY_DELAY' end
  if op.stuck then
    local since = redis.call('ZSCORE', RUNNING, id)
    if not since or tonumber(since) > tonumber(SECONDS) - op.stuck then return 'NOT_STUCK' end
  end
end

-- A value that an operation sets.
local function value_of(op, job, field, word)
  if string.byte(word) == 61 then return string.sub(word, 2) end
  if word == '@now' then return now() end
  if word == '@unix' then return SECONDS end
  if word == '@later' then return iso(MICROS + op.delay * 1000) .. 'Z' end
  return string.format('%.0f', job[field] + 1)
end

-- The queue's score for a job with that status after the change, '' for none; nil if it cannot be told.
local function score_after(key, status, delay)
  if status ~= '100' and status ~= '200' then return '' end
  local seconds, fraction = moment(delay ~= '' and delay or redis.call('HGET', key, 'CreatedAt') or '')
  return seconds and score_of(seconds, fraction)
end

-- Does it, and lets the indexes follow. Returns 'done', or why not and the job.
local function perform(op, key, id, text)
  local job = op.create and {Status = '', RetryDelayUntil = '', Version = '0'} or look(key, id)
  if not job then return 'DESERIALIZATION_ERROR' end
  local why = not op.create and barred(op, job, id)
  if why then return why, job end
  -- One more would have more digits than `whole` reads, and the job could not be changed ever again.
  if job.Version == '999999999999999999' then return 'DESERIALIZATION_ERROR' end
  local first, last = op.first, op.last
  if op.finals >= op.final and tonumber(job.RetryCount) >= tonumber(job.MaxRetries) then
    first, last = op.final, op.finals
  end
  -- Beyond 2^53 only Redis can count.
  local exact = #job.Version < 16
  local sets = {'LastUpdatedAt', now(), 'Version', exact and string.format('%.0f', job.Version + 1) or job.Version}
  local n, status, delay, gone = 4, job.Status, job.RetryDelayUntil, nil
  for i = first, last, 2 do
    local field, word = op.words[i], op.words[i + 1]
    if word == '@none' then
      gone = field
    else
      local value = value_of(op, job, field, word)
      sets[n + 1], sets[n + 2], n = field, value, n + 2
      if field == 'Status' then status = value elseif field == 'RetryDelayUntil' then delay = value end
    end
  end
  local due = op.create and delay == '' and score_of(moment(now())) or score_after(key, status, delay)
  if not due then return 'DESERIALIZATION_ERROR' end
  for i = 1, n, 4000 do redis.call('HSET', key, unpack(sets, i, math.min(i + 3999, n))) end
  if gone then redis.call('HDEL', key, gone) end
  if not exact then redis.call('HINCRBY', key, 'Version', 1) end
  follow(id, text, due, status == '300' and SECONDS or '', job.Status)
  return 'done'
end
