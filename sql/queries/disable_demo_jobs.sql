-- Demo: the end. Disables every job, which cancels what is queued for later; running runs go on.
-- Rows: what each counted, as it was before: name, schedule, timezone, anchored_at, counted until, exclusive, max_attempts.
with before as materialized (
    select id, name, schedule, timezone, anchored_at, next_run_at, overlap <> 'allow' as exclusive, max_attempts
      from pgcron.jobs
       for no key update
)
update pgcron.jobs j set enabled = false
  from before b
 where j.id = b.id
returning b.name, b.schedule, b.timezone, b.anchored_at, coalesce(b.next_run_at, clock_timestamp()), b.exclusive, b.max_attempts
