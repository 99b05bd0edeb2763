-- Watch: one worker at a time, and once in `every` seconds. Row: it is this worker's turn. No row: somebody has just done it.
update pgcron.watch set watched_at = coalesce(%(now)s::timestamptz, clock_timestamp())
 where watched_at <= coalesce(%(now)s::timestamptz, clock_timestamp()) - make_interval(secs => %(every)s)
    -- The clock was set back.
    or watched_at > coalesce(%(now)s::timestamptz, clock_timestamp()) + interval '1 minute'
returning true
