-- Resume: enabled and not paused; the schedule counts from now. With `catch_up` a job that is held at present counts from when
-- it was held: a trigger keeps an anchor that the statement itself moves. Row: the job's id. No row: no such job.
update pgcron.jobs
   set enabled = true, paused_until = null,
       anchored_at = case when %(catch_up)s and (not enabled or paused_until > coalesce(%(now)s::timestamptz, now()))
                          then anchored_at + interval '1 microsecond' else anchored_at end
 where name = %(name)s
returning id
