-- Finish, where a run did not come back: was it ended so by this very worker, by a COMMIT whose answer was lost?
-- Reaping writes other reasons. Rows: the ids of those that were.
select r.id
  from unnest(%(run_ids)s::bigint[], %(statuses)s::text[], %(reasons)s::text[]) as o(run_id, status, reason)
  join pgcron.runs r on r.id = o.run_id
 where r.worker_id = %(worker_id)s and r.status = o.status and r.reason is not distinct from o.reason
