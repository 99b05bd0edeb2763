-- Fire, last step: next_run_at moves on (null: never again, or there is a problem). Only jobs that this transaction has locked.
update pgcron.jobs j
   set next_run_at = p.next_run_at, planned = true, problem = p.problem
  from unnest(%(job_ids)s::int[], %(next_run_at)s::timestamptz[], %(problems)s::text[]) as p(job_id, next_run_at, problem)
 where j.id = p.job_id
