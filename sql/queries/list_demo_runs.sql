-- Demo: the whole history, oldest first, with the worker's name in place of its id.
select r.id, r.job_name, r.kind, r.trigger, r.scheduled_for, r.attempt, r.status, w.name, r.started_at, r.finished_at,
       r.reason, r.error, r.missed_count, r.missed_until
  from pgcron.runs r left join pgcron.workers w on w.id = r.worker_id
 order by r.id
