-- Run now: nothing -> queued, for one job by name, marked manual; or skipped, where the overlap rule (the job's, or the one
-- given) says so. With replace the running runs are asked to stop.
-- Row: the run's id, its status and the reason. No row: no such job.
with target as materialized (
    select j.*, coalesce(%(overlap)s, j.overlap) as rule, coalesce(%(now)s::timestamptz, clock_timestamp()) as at
      from pgcron.jobs j where j.name = %(name)s
), live as materialized (
    select t.id, (select min(r.id) from pgcron.runs r where r.job_id = t.id and r.status = 'running') as running,
           (select min(r.id) from pgcron.runs r where r.job_id = t.id and r.status = 'queued') as queued
      from target t
), verdict as materialized (
    select case when t.rule = 'skip' and l.running is not null then 'overlap: run ' || l.running || ' is still running'
                when t.rule in ('skip', 'queue_one', 'replace') and l.queued is not null then 'overlap: run ' || l.queued || ' is still queued'
           end as reason
      from target t join live l on l.id = t.id
), replaced as (
    update pgcron.runs r set cancel_requested_at = clock_timestamp()
      from target t, verdict v
     where t.rule = 'replace' and v.reason is null and r.job_id = t.id and r.status = 'running' and r.cancel_requested_at is null
)
insert into pgcron.runs (job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at, args, max_running, status, reason, finished_at)
select t.id, t.name, t.kind, t.queue, t.priority, 'manual', t.at, t.at, %(args)s::jsonb,
       case when t.overlap = 'allow' then t.max_running else 1 end,
       case when v.reason is null then 'queued' else 'skipped' end, v.reason, case when v.reason is not null then t.at end
  from target t, verdict v
returning id, status, reason
