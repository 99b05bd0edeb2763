-- What is due next: jobs in the order of their next times, at most `limit`. Those that no worker has planned yet are first.
select name, kind, queue, timezone, next_run_at, planned
  from pgcron.jobs
 where enabled and next_run_at is not null
 order by next_run_at, id
 limit %(limit)s
