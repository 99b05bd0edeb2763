-- Fire, last step: next_run_at moves on (null: never again, or there is a problem), and with it what has been accounted for.
-- Only jobs that this transaction has locked.
update pgcron.jobs j
   set next_run_at = p.next_run_at, planned = true, problem = p.problem, zone_data = %(zone_data)s,
       fired_until = coalesce(%(now)s::timestamptz, now()), fired_local = coalesce(p.fired_local, j.fired_local)
  from unnest(%(job_ids)s::int[], %(next_run_at)s::timestamptz[], %(problems)s::text[], %(fired_local)s::text[])
        as p(job_id, next_run_at, problem, fired_local)
 where j.id = p.job_id
