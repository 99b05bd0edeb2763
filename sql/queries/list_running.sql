-- What runs, the longest first, at most `limit`; with the job's timeout (null: the job is gone), and how many run in all.
select r.id, r.job_name, r.kind, r.queue, r.trigger, r.scheduled_for, r.started_at, r.attempt, j.max_attempts, j.timeout,
       r.progress, w.name as worker, r.cancel_requested_at, (count(*) over ())::int as total
  from pgcron.runs r
  left join pgcron.jobs j on j.id = r.job_id
  left join pgcron.workers w on w.id = r.worker_id
 where r.status = 'running'
 order by r.started_at, r.id
 limit %(limit)s
