-- Runs of one job, newest occurrence first, at most `limit`; with job_id null those of a removed job of that name.
-- A null filter takes all.
select r.id, r.job_id, r.job_name, j.timezone, r.kind, r.queue, r.trigger, r.scheduled_for, r.run_at, r.attempt, r.status, r.reason,
       r.created_at, r.started_at, r.finished_at, r.exit_code, r.error, r.worker_id, w.name as worker, r.missed_count, r.missed_until,
       r.backfill, r.progress
  from pgcron.runs r
  left join pgcron.jobs j on j.id = r.job_id
  left join pgcron.workers w on w.id = r.worker_id
 where (r.job_id = %(job_id)s::int or (%(job_id)s::int is null and r.job_id is null and r.job_name = %(job_name)s))
   and (%(scheduled_for)s::timestamptz is null or r.scheduled_for = %(scheduled_for)s)
   and (%(since)s::timestamptz is null or r.created_at >= %(since)s)
   and (%(status)s::text is null or r.status = %(status)s)
 order by r.scheduled_for desc, r.attempt desc
 limit %(limit)s
