-- Heartbeat, second half: the runs that are running under this worker's id, and which of them somebody wants stopped; and
-- those of `run_ids` that its own SQL transaction has just recorded as succeeded.
-- A run in hand that does not come back was taken away. One that comes back and is not in hand was claimed by a COMMIT
-- whose answer was lost, and was never begun. Rows: id, wanted stopped.
select id, cancel_requested_at is not null from pgcron.runs where worker_id = %(worker_id)s and status = 'running'
union all
select id, false from pgcron.runs where id = any(%(run_ids)s::bigint[]) and worker_id = %(worker_id)s and status = 'succeeded'
