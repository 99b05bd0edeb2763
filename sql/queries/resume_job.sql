-- Resume: enabled and not paused; a job that is held at present counts from now (a trigger keeps an anchor that the statement
-- itself moves). One whose pause has ended by itself goes on as it is; with `catch_up`, which has made up for that pause,
-- it counts from its end, so that nobody makes up for it again. Row: the job's id. No row: no such job.
update pgcron.jobs j
   set enabled = true,
       paused_until = case when %(catch_up)s or j.paused_until > clock.now then null else j.paused_until end,
       anchored_at = case when not j.enabled or j.paused_until > clock.now then clock.now
                          when %(catch_up)s and j.paused_until > j.anchored_at then j.paused_until - interval '1 microsecond'
                          else j.anchored_at end
  from (select coalesce(%(now)s::timestamptz, now()) as now) clock
 where j.name = %(name)s
returning j.id
