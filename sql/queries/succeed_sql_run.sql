-- SQL job, last statement of its transaction: running -> succeeded with the fence, commits together with the work.
-- No row: the run was taken away, or the job's text ended the transaction that held the lock. Then roll back.
update pgcron.runs r
   set status = 'succeeded', finished_at = coalesce(%(now)s::timestamptz, clock_timestamp()), result = %(result)s::text::jsonb,
       output = %(output)s, output_bytes = %(output_bytes)s, output_truncated = %(output_truncated)s
 where r.id = %(run_id)s and r.worker_id = %(worker_id)s and r.status = 'running'
   and (not %(exclusive)s or exists (
        select from pg_locks l
         where l.locktype = 'advisory' and l.pid = pg_backend_pid() and l.granted and l.objsubid = 1
           and l.classid = 'pgcron'::regnamespace::oid and l.objid = r.job_id::oid))
returning r.id
