-- Carries an operation out on a job of which only the hash is left: the twin of migrator/adapters/jobs_rules.py.
-- An operation in ARGV: worker "-" any | "" none | its guid, statuses ",100,200," or "", version or "", "due" or "",
-- stuck for seconds or "", delay in ms, "new" or "", n, n words; n, n words for when no retry is left.
-- Words are fields and values; a value is "=text", "@now", "@unix", "@later", "@next" or "@none".
local function operation(i)
  local function words(at) return {first = at + 1, last = at + tonumber(ARGV[at])} end
  local sets = words(i + 7)
  local finals = words(sets.last + 1)
  return {worker = ARGV[i], statuses = ARGV[i + 1], version = ARGV[i + 2], due = ARGV[i + 3] == 'due',
    stuck = tonumber(ARGV[i + 4]), delay = tonumber(ARGV[i + 5]), create = ARGV[i + 6] == 'new',
    sets = sets, finals = finals}, finals.last + 1
end

local STATUSES = ',100,200,300,400,500,600,'

local function whole(text, default)
  if not text or text == '' then return default end
  if #text > 18 or not (text == '0' or string.match(text, '^%-?[1-9]%d*$')) then return nil end
  return text
end

-- The job and its fields as they lie there; nil if what an operation looks at cannot be read.
local function look(key, id)
  local flat, job = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do job[flat[i]] = flat[i + 1] end
  job.Version, job.RetryCount = whole(job.Version, '0'), whole(job.RetryCount, '0')
  job.MaxRetries = whole(job.MaxRetries, '3')
  local status, delay = job.Status or '', job.RetryDelayUntil or ''
  if string.lower(job.Id or '') ~= id or #status ~= 3 or not string.find(STATUSES, status, 1, true) then return nil end
  if not (job.Version and job.RetryCount and job.MaxRetries) then return nil end
  if delay ~= '' then
    job.due, job.due_fraction = moment(delay)
    if not job.due then return nil end
  end
  return job, flat
end

-- The fields after a change, without asking for them again.
local function merge(flat, sets, gone)
  local old, out = {}, {}
  for _, name in ipairs(gone) do old[name] = true end
  for i = 1, #sets, 2 do
    old[sets[i]] = true
    out[#out + 1], out[#out + 2] = sets[i], sets[i + 1]
  end
  for i = 1, #flat, 2 do
    if not old[flat[i]] then out[#out + 1], out[#out + 2] = flat[i], flat[i + 1] end
  end
  return out
end

-- The seed's code for what is in the way, if anything is.
local function barred(op, job, id)
  local worker = string.lower(job.WorkerId or '')
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

-- Does it, and lets the indexes follow. Returns 'done' and all fields, or why not and the job.
local function perform(op, key, id, text)
  local job, flat = {Status = '', Version = '0'}, {}
  if not op.create then job, flat = look(key, id) end
  if not job then return 'DESERIALIZATION_ERROR' end
  local why = not op.create and barred(op, job, id)
  if why then return why, job end
  local words = op.sets
  if op.finals.last >= op.finals.first and tonumber(job.RetryCount) >= tonumber(job.MaxRetries) then
    words = op.finals
  end
  -- Beyond 2^53 only Redis can count.
  local exact = #job.Version < 16
  local sets, gone, is_set = {'Version', exact and string.format('%.0f', job.Version + 1) or job.Version}, {}, {}
  local function set(field, value) sets[#sets + 1], sets[#sets + 2], is_set[field] = field, value, value end
  for i = words.first, words.last, 2 do
    local field, value = ARGV[i], ARGV[i + 1]
    if value == '@none' then gone[#gone + 1] = field
    elseif value == '@now' then set(field, now())
    elseif value == '@unix' then set(field, SECONDS)
    elseif value == '@later' then set(field, iso(MICROS + op.delay * 1000) .. 'Z')
    elseif value == '@next' then set(field, string.format('%.0f', job[field] + 1))
    else set(field, string.sub(value, 2)) end
  end
  set('LastUpdatedAt', now())
  local status = is_set.Status or job.Status
  local due, started = '', status == '300' and SECONDS or ''
  if status == '100' or status == '200' then
    local at = is_set.RetryDelayUntil or job.RetryDelayUntil or ''
    local seconds, fraction = moment(at ~= '' and at or is_set.CreatedAt or job.CreatedAt or '')
    if not seconds then return 'DESERIALIZATION_ERROR' end
    due = score_of(seconds, fraction)
  end
  for i = 1, #sets, 4000 do redis.call('HSET', key, unpack(sets, i, math.min(i + 3999, #sets))) end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
  follow(id, text, due, started, job.Status)
  if not exact then
    redis.call('HINCRBY', key, 'Version', 1)
    return 'done', redis.call('HGETALL', key)
  end
  return 'done', merge(flat, sets, gone)
end
