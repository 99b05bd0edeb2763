-- SQL job, in its own transaction: takes the transaction lock of the job (key: schema oid and job id in one bigint; only the
-- end of this transaction frees it), sees that the run is still ours, and says to the job which run it is.
-- Row: locked, ours, the transaction's id. The lock is not asked for where the job allows overlap.
-- The session's search_path is the job's: nothing here may be looked up in it, neither function, operator nor type.
select case when %(exclusive)s
            then pg_catalog.pg_try_advisory_xact_lock(
                (('pgcron'::pg_catalog.regnamespace)::pg_catalog.oid::bigint operator(pg_catalog.<<) 32) operator(pg_catalog.|) %(job_id)s::bigint)
            else true end,
       exists (select from pgcron.runs r
                where r.id operator(pg_catalog.=) %(run_id)s::bigint
                  and r.worker_id operator(pg_catalog.=) %(worker_id)s::pg_catalog.uuid
                  and r.status operator(pg_catalog.=) 'running'::pg_catalog.text),
       pg_catalog.pg_current_xact_id()::pg_catalog.text,
       pg_catalog.set_config('pgcron.transaction', 'on', true),
       pg_catalog.set_config('pgcron.run_id', %(run_id)s::bigint::pg_catalog.text, true),
       pg_catalog.set_config('pgcron.job', %(job_name)s, true),
       pg_catalog.set_config('pgcron.scheduled_for', %(scheduled_for)s, true),
       pg_catalog.set_config('pgcron.attempt', %(attempt)s::int::pg_catalog.text, true),
       pg_catalog.set_config('pgcron.args', %(args)s, true),
       pg_catalog.set_config('pgcron.state', %(state)s, true),
       pg_catalog.set_config('statement_timeout', %(timeout_ms)s::bigint::pg_catalog.text, true),
       pg_catalog.set_config('lock_timeout', '0', true),
       case when pg_catalog.current_setting('server_version_num')::int operator(pg_catalog.>=) 170000
            then pg_catalog.set_config('transaction_timeout', '0', true) end
