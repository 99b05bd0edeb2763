-- SQL job, in its own transaction: takes the transaction lock of the job (key: schema oid and job id in one bigint; only the
-- end of this transaction frees it), sees that the run is still ours, and says to the job which run it is.
-- Row: locked, ours, the transaction's id. The lock is not asked for where the job allows overlap.
select case when %(exclusive)s
            then pg_try_advisory_xact_lock(('pgcron'::regnamespace::oid::bigint << 32) | %(job_id)s::bigint)
            else true end,
       exists (select from pgcron.runs where id = %(run_id)s and worker_id = %(worker_id)s and status = 'running'),
       pg_current_xact_id()::text,
       set_config('pgcron.run_id', %(run_id)s::text, true), set_config('pgcron.job', %(job_name)s, true),
       set_config('pgcron.scheduled_for', %(scheduled_for)s::text, true), set_config('pgcron.attempt', %(attempt)s::text, true),
       set_config('statement_timeout', %(timeout_ms)s::text, true), set_config('lock_timeout', '0', true)
