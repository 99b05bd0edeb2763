-- Pause: with `until` nothing is started on schedule before that instant, without it the job is disabled.
-- Its queued runs are cancelled by a trigger; a running one goes on. A pause that is changed before its end is still the same
-- one, and keeps its beginning: a trigger keeps an anchor that the statement itself moves. Row: enabled, paused_until. No row: no such job.
update pgcron.jobs
   set enabled = enabled and %(until)s::timestamptz is not null,
       paused_until = coalesce(%(until)s::timestamptz, paused_until),
       anchored_at = case when not enabled or paused_until > coalesce(%(now)s::timestamptz, now())
                          then anchored_at + interval '1 microsecond' else anchored_at end
 where name = %(name)s
returning enabled, paused_until
