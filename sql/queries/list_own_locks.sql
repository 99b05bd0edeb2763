-- The job locks that this very session holds, in the key space of this installation. Rows: job_id, exclusive.
select objid::int, mode = 'ExclusiveLock'
  from pg_locks
 where locktype = 'advisory' and pid = pg_backend_pid() and objsubid = 2 and granted
   and classid = 'pgcron'::regnamespace::oid
   and database = (select oid from pg_database where datname = current_database())
