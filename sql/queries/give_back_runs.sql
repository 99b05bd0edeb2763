-- After a claim whose COMMIT got no answer: running -> queued, for runs that this worker holds and never began.
update pgcron.runs
   set status = 'queued', worker_id = null, lane = null, started_at = null
 where id = any(%(run_ids)s::bigint[]) and worker_id = %(worker_id)s and status = 'running'
