-- After a reconnect: takes the locks of the runs in hand again. Rows: the jobs whose lock could not be had.
-- The subselect is materialized, so that each lock is tried once per run.
with tried as materialized (
    select l.job_id, case when l.exclusive
                          then pg_try_advisory_lock('pgcron'::regnamespace::oid::int, l.job_id)
                          else pg_try_advisory_lock_shared('pgcron'::regnamespace::oid::int, l.job_id) end as granted
      from unnest(%(job_ids)s::int[], %(exclusive)s::boolean[]) as l(job_id, exclusive)
)
select distinct job_id from tried where not granted
