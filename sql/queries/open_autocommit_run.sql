-- SQL job without a transaction: says to the job's session which run it is, and lifts the limits that its role may have.
-- `transaction` is off where save_state is to write to the row; empty on another database, which has no such row.
-- The session's search_path is the job's: nothing here may be looked up in it, neither function, operator nor type.
select pg_catalog.set_config('pgcron.transaction', %(transaction)s, false),
       pg_catalog.set_config('pgcron.worker_id', %(worker_id)s, false),
       pg_catalog.set_config('pgcron.run_id', %(run_id)s::bigint::pg_catalog.text, false),
       pg_catalog.set_config('pgcron.job', %(job_name)s, false),
       pg_catalog.set_config('pgcron.scheduled_for', %(scheduled_for)s, false),
       pg_catalog.set_config('pgcron.attempt', %(attempt)s::int::pg_catalog.text, false),
       pg_catalog.set_config('pgcron.args', %(args)s, false),
       pg_catalog.set_config('pgcron.state', %(state)s, false),
       pg_catalog.set_config('statement_timeout', '0', false),
       pg_catalog.set_config('lock_timeout', '0', false),
       case when pg_catalog.current_setting('server_version_num')::int operator(pg_catalog.>=) 170000
            then pg_catalog.set_config('transaction_timeout', '0', false) end
