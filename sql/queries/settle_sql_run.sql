-- SQL job whose COMMIT got no answer, on a new session: once the transaction lock and the row can be had, the old transaction
-- is over and the row says how it ended. Row: over, status (null: the run is gone).
with run as materialized (
    select status from pgcron.runs where id = %(run_id)s for update skip locked
)
select pg_try_advisory_xact_lock(('pgcron'::regnamespace::oid::bigint << 32) | %(job_id)s::bigint)
           and (exists (select from run) or not exists (select from pgcron.runs where id = %(run_id)s)),
       (select status from run)
