-- Claim of a queue with a limit, second step (a statement of its own, so that its snapshot is newer than the lock):
-- how many more runs may start.
select greatest(q.max_running - (select count(*) from pgcron.runs r where r.status = 'running' and r.queue = q.name), 0)::int
  from pgcron.queues q where q.name = %(queue)s
