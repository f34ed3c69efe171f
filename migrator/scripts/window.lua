-- uses: expiry
-- The end of a transaction that added members of a window to a copy: gives it the expiry of its truth, in the same step.
-- KEYS  truth, copy
-- ARGV  truth kind, copy kind
-- Reply 1 · 0 (the truth is gone, or one of them is of another type)
if redis.call('TYPE', KEYS[1]).ok ~= ARGV[1] or redis.call('TYPE', KEYS[2]).ok ~= ARGV[2] then return 0 end
set_expiry(KEYS[2], expiry(KEYS[1]))
return 1
