-- SQL job whose COMMIT got no answer, on a new session: once the transaction lock can be had, the old transaction is over and
-- the row says how it ended. Row: locked, status (null: the run is gone).
select pg_try_advisory_xact_lock(('pgcron'::regnamespace::oid::bigint << 32) | %(job_id)s::bigint),
       (select status from pgcron.runs where id = %(run_id)s)
