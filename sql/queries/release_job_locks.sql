-- Unlock: gives back the advisory locks of finished runs, as often as each was taken. Control session only.
select count(*) filter (where case when l.exclusive
                                   then pg_advisory_unlock('pgcron'::regnamespace::oid::int, l.job_id)
                                   else pg_advisory_unlock_shared('pgcron'::regnamespace::oid::int, l.job_id) end)::int
  from unnest(%(job_ids)s::int[], %(exclusive)s::boolean[]) as l(job_id, exclusive)
