-- SQL job without a transaction, on its own session, before its first statement. Row: whether the run is this worker's here too; a
-- session may have found another server than the one that gave the run out, which has taken over and knows nothing of it.
-- The session's search_path is the job's: nothing here may be looked up in it, neither function, operator nor type.
select exists (select from pgcron.runs r
                where r.id operator(pg_catalog.=) %(run_id)s::bigint
                  and r.worker_id operator(pg_catalog.=) %(worker_id)s::pg_catalog.uuid
                  and r.status operator(pg_catalog.=) 'running'::pg_catalog.text)
