-- SQL job, last statement of its transaction: running -> succeeded with the fence, commits together with the work.
-- COMMIT is sent behind it without waiting, so nothing changed must be an error: division by zero where the run was taken
-- away, or where the job's text has ended the transaction that held the lock (the transaction's id tells).
-- The session's search_path is the job's: nothing here may be looked up in it, neither function, operator nor type.
with finished as (
    update pgcron.runs r
       set status = 'succeeded', finished_at = coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()),
           result = %(result)s::pg_catalog.text::pg_catalog.jsonb, output = %(output)s::pg_catalog.text,
           output_bytes = %(output_bytes)s::bigint, output_truncated = %(output_truncated)s::boolean
     where r.id operator(pg_catalog.=) %(run_id)s::bigint
       and r.worker_id operator(pg_catalog.=) %(worker_id)s::pg_catalog.uuid
       and r.status operator(pg_catalog.=) 'running'::pg_catalog.text
       and pg_catalog.pg_current_xact_id()::pg_catalog.text operator(pg_catalog.=) %(transaction_id)s::pg_catalog.text
    returning r.id
)
select 1 operator(pg_catalog./) pg_catalog.count(*)::int from finished
