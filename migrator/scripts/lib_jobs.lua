-- What scripts about jobs share. It stands on adapter and moment.
-- KEYS  marker, queue, running, aside, then the keys of a job (or of several), by layout
local QUEUE, RUNNING, ASIDE, JOB = KEYS[2], KEYS[3], KEYS[4], 5
local SECONDS = CLOCK[1]

-- The reply that refuses a key of another type; to be asked before the first write.
local function other(key, kind)
  local type = is(key)
  if type ~= 'none' and type ~= kind then return {'type', type} end
end
local function foreign() return other(QUEUE, 'zset') or other(RUNNING, 'zset') or other(ASIDE, 'hash') end

-- Takes a member out of an index, and keeps it where it can be found: why, its score, when (unix ms).
local function shelve(index, text, why)
  local score = redis.pcall('ZSCORE', index, text) -- an error in a slot on the move, where its last member was taken
  if type(score) ~= 'string' then return end
  redis.call('ZREM', index, text)
  redis.call('HSET', ASIDE, text, string.format('%s %s %.0f', why, score, math.floor(MICROS / 1000)))
end

-- Makes both indexes follow a job that was written. `text` is the member as it lay in the queue, if it was seen there;
-- `due` and `started` are scores, '' for none; a job that was in progress before keeps the score it has.
-- No index is touched again once its last member may be gone: in a slot on the move that would be an error half-way.
local function follow(id, text, due, started, before)
  if text == '' then text = id end
  if due == '' then
    redis.call('ZREM', QUEUE, id, text)
  else
    redis.call('ZADD', QUEUE, due, id)
    if text ~= id then redis.call('ZREM', QUEUE, text) end
    redis.call('HDEL', ASIDE, id)
  end
  if started == '' then
    redis.call('ZREM', RUNNING, id)
  elseif before == '300' then
    redis.call('ZADD', RUNNING, 'NX', started, id)
  else
    redis.call('ZADD', RUNNING, started, id)
  end
end
