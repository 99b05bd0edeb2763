-- Pause: with `until` nothing is started on schedule before that instant, without it the job is disabled. A pause that is
-- changed before its end is still the same one: a trigger keeps its beginning.
-- Its queued runs are cancelled by a trigger; a running one goes on. Row: enabled, paused_until. No row: no such job.
update pgcron.jobs
   set enabled = enabled and %(until)s::timestamptz is not null,
       paused_until = coalesce(%(until)s::timestamptz, paused_until)
 where name = %(name)s
returning enabled, paused_until
