-- Heartbeat, second half: which runs are still this worker's own, and which of them somebody wants stopped.
-- A run in hand that does not come back was taken away: its command must be stopped.
select id, cancel_requested_at is not null
  from pgcron.runs
 where id = any(%(run_ids)s::bigint[]) and worker_id = %(worker_id)s and status = 'running'
