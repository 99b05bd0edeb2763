-- SQL job on another database, in its own transaction there: takes the job's transaction lock of that server (the key comes
-- from the worker, since that database knows no schedule) and says to the job which run it is.
-- Row: locked. The lock is not asked for where the job allows overlap.
-- The session's search_path is the job's: nothing here may be looked up in it, neither function, operator nor type.
select case when %(exclusive)s then pg_catalog.pg_try_advisory_xact_lock(%(lock_key)s::bigint) else true end,
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
