-- Demo: every worker. Rows: name, pid, lease and age of the last heartbeat in seconds, end_reason (null: not ended).
select name, pid, extract(epoch from lease)::float8, extract(epoch from clock_timestamp() - heartbeat_at)::float8, end_reason
  from pgcron.workers
 order by name, started_at
