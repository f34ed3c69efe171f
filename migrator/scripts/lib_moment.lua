-- The moment of this script, by the server's clock, and dates as a job's hash has them; the reading of dates follows
-- migrator/records/dates.py for all that the library and its recovery scripts wrote.
local CLOCK = redis.call('TIME')
local MICROS = CLOCK[1] * 1000000 + CLOCK[2]

local function days(y, m, d)
  if m <= 2 then y = y - 1 end
  local era = math.floor(y / 400)
  local year = y - era * 400
  local day = math.floor((153 * ((m + 9) % 12) + 2) / 5) + d - 1
  return era * 146097 + year * 365 + math.floor(year / 4) - math.floor(year / 100) + day - 719468
end

-- Unix µs as `2025-10-02T06:15:30.1234560`, in UTC.
local function iso(micros)
  local seconds = math.floor(micros / 1000000)
  local z = math.floor(seconds / 86400) + 719468
  local rest = seconds % 86400
  local era = math.floor(z / 146097)
  local d = z - era * 146097
  local year = math.floor((d - math.floor(d / 1460) + math.floor(d / 36524) - math.floor(d / 146096)) / 365)
  local day = d - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * day + 2) / 153)
  local m = month < 10 and month + 3 or month - 9
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06d0', year + era * 400 + (m <= 2 and 1 or 0), m,
    day - math.floor((153 * month + 2) / 5) + 1, math.floor(rest / 3600), math.floor(rest / 60) % 60, rest % 60,
    micros % 1000000)
end

-- This moment, as a hash has it.
local now_text
local function now()
  now_text = now_text or iso(MICROS) .. '+00:00'
  return now_text
end

local MONTHS = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}
-- Whole unix seconds and 7 fraction digits of a date, ISO or in unix seconds; nil for anything else.
local function moment(text)
  local s, f = string.match(text, '^(%d+)%.?(%d*)$')
  if s then
    if #s > 12 or #f > 16 or (f == '' and string.find(text, '.', 1, true)) then return nil end
    return tonumber(s), string.sub(f .. '0000000', 1, 7)
  end
  local y, m, d, h, min, sec, rest =
    string.match(text, '^(%d%d%d%d)%-(%d%d)%-(%d%d)T(%d%d):(%d%d):(%d%d)(.*)$')
  if not y then return nil end
  local dot, digits, zone = string.match(rest, '^(%.?)(%d*)(.*)$')
  if (dot == '') ~= (digits == '') or #digits > 16 then return nil end
  y, m, d, h, min, sec = tonumber(y), tonumber(m), tonumber(d), tonumber(h), tonumber(min), tonumber(sec)
  local leap = m == 2 and y % 4 == 0 and (y % 100 ~= 0 or y % 400 == 0)
  if y < 1 or m < 1 or m > 12 or d < 1 or d > MONTHS[m] + (leap and 1 or 0) or h > 23 or min > 59 or sec > 59 then
    return nil
  end
  local offset = 0
  if zone ~= '' and zone ~= 'Z' then
    local sign, zh, zm = string.match(zone, '^([+-])(%d%d):(%d%d)$')
    if not sign or tonumber(zm) > 59 or zh * 60 + zm > 840 then return nil end
    offset = (zh * 60 + zm) * (sign == '-' and -60 or 60)
  end
  return days(y, m, d) * 86400 + h * 3600 + min * 60 + sec - offset, string.sub(digits .. '0000000', 1, 7)
end

-- Unix µs, rounded up: what is due is never due early.
local function micros_of(seconds, fraction) return seconds * 1000000 + math.ceil(fraction / 10) end

-- Unix seconds as the text of a score, all digits; before 1970 a double is near enough.
local function score_of(seconds, fraction)
  if seconds >= 0 then return string.format('%.0f.%s', seconds, fraction) end
  return string.format('%.17g', seconds + fraction / 10000000)
end
