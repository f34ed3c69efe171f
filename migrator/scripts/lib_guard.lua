-- guard(): nil if the marker KEYS[1] is exactly as the caller planned, else the reply to give.
-- ARGV[1] ",phase,phase," allowed   ARGV[2] epoch   ARGV[3] fence number   ARGV[4] fence token
-- Replies: {"no-marker"} · {"fenced", number, token} · {"phase", phase, epoch}
local function guard()
  local m = redis.call('HMGET', KEYS[1], 'phase', 'epoch', 'fence', 'token')
  if not m[1] then return {'no-marker'} end
  if m[3] ~= ARGV[3] or m[4] ~= ARGV[4] then return {'fenced', m[3], m[4]} end
  if m[2] ~= ARGV[2] or not string.find(ARGV[1], ',' .. m[1] .. ',', 1, true) then
    return {'phase', m[1], m[2]}
  end
  return nil
end
