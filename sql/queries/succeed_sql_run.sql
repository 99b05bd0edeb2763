-- SQL job, last statement of its transaction: running -> succeeded with the fence, commits together with the work.
-- COMMIT is sent behind it without waiting, so nothing changed must be an error: division by zero where the run was taken
-- away, or where the job's text has ended the transaction that held the lock (the transaction's id tells).
with finished as (
    update pgcron.runs r
       set status = 'succeeded', finished_at = coalesce(%(now)s::timestamptz, clock_timestamp()), result = %(result)s::text::jsonb,
           output = %(output)s, output_bytes = %(output_bytes)s, output_truncated = %(output_truncated)s
     where r.id = %(run_id)s and r.worker_id = %(worker_id)s and r.status = 'running'
       and pg_current_xact_id()::text = %(transaction_id)s
    returning r.id
)
select 1 / count(*)::int from finished
