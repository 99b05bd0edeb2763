-- Overlap replace: asks for the running runs to be stopped, in the transaction that queues their successor.
update pgcron.runs set cancel_requested_at = clock_timestamp()
 where id = any(%(run_ids)s::bigint[]) and status = 'running' and cancel_requested_at is null
