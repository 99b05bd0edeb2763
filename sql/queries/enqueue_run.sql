-- Run now: nothing -> queued, for one job by name, marked manual; or skipped, where the overlap rule (the job's, or the one
-- given) says so. With replace the running runs are asked to stop.
-- Row: the run's id, its status and the reason. No row: no such job.
select made.run_id, made.status, made.reason
  from pgcron.jobs j
 cross join lateral pgcron.enqueue_run(
       j.id, 'manual', coalesce(%(now)s::timestamptz, clock_timestamp()), overlap => %(overlap)s::text, args => %(args)s::jsonb) as made
 where j.name = %(name)s
