-- Run now: nothing -> queued, for one job by name, marked manual. Row: the run's id. No row: no such job.
insert into pgcron.runs (job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at, args, max_running)
select j.id, j.name, j.kind, j.queue, j.priority, 'manual', t.now, t.now, %(args)s::jsonb,
       case when j.overlap = 'allow' then j.max_running else 1 end
  from pgcron.jobs j, (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) t
 where j.name = %(name)s
returning id
