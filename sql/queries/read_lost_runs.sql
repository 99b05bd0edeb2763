-- Reap, third step: the running runs of a dead worker, locked, with what decides on their next attempt.
select r.id, r.job_id, r.job_name, r.attempt, j.max_attempts, j.retry_delay, j.retry_backoff, j.retry_max_delay
  from pgcron.runs r left join pgcron.jobs j on j.id = r.job_id
 where r.worker_id = %(worker_id)s and r.status = 'running'
 order by r.id
 limit %(limit)s
   for update of r skip locked
