-- What wrk sends. Arguments after `--`: METHOD MODE PREFIX SUFFIX [ACTORS [PAUSE_MS]]
--   MODE hot     one actor, PREFIX..SUFFIX
--        spread  one of ACTORS actors, drawn anew for each request
--        fresh   an actor never asked before; needs one thread (-t1)
--   PAUSE_MS between an answer and the next request of its connection
-- At the end one line RESULT with the figures; times in microseconds.

local prefix, suffix

function init(arguments)
  local mode, actors = arguments[2], tonumber(arguments[5])
  wrk.method, prefix, suffix = arguments[1], arguments[3], arguments[4] or ""
  if mode == "hot" then
    local same = wrk.format(nil, prefix .. suffix)
    request = function() return same end
  elseif mode == "spread" then
    math.randomseed(os.time())
    request = function() return wrk.format(nil, prefix .. math.random(actors) .. suffix) end
  elseif mode == "fresh" then
    local made = 0
    request = function()
      made = made + 1
      return wrk.format(nil, prefix .. made .. suffix)
    end
  else
    error("no such mode: " .. tostring(mode))
  end
  local pause = tonumber(arguments[6]) or 0
  if pause > 0 then
    delay = function() return pause end
  end
end

function done(summary, latency)
  local failed = summary.errors
  io.write(string.format(
    "RESULT requests=%d duration_us=%d p50_us=%d p99_us=%d max_us=%d errors=%d bad_status=%d\n",
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency.max,
    failed.connect + failed.read + failed.write + failed.timeout, failed.status))
end
