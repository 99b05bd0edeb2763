-- What the last hundred runs of each job tell its review. p95 is of those that succeeded, p99 of those that timed out too.
-- A row a job: name, runs, tried, succeeded, skipped, succeeded_late (not at the first attempt), p95, p99.
select j.name, f.*
  from pgcron.jobs j
 cross join lateral (
        select count(*)::int as runs,
               (count(*) filter (where r.status in ('succeeded', 'failed', 'timed_out', 'lost')))::int as tried,
               (count(*) filter (where r.status = 'succeeded'))::int as succeeded,
               (count(*) filter (where r.status = 'skipped'))::int as skipped,
               (count(*) filter (where r.status = 'succeeded' and r.attempt > 1))::int as succeeded_late,
               percentile_cont(0.95) within group (order by r.took) filter (where r.status = 'succeeded') as p95,
               percentile_cont(0.99) within group (order by r.took) filter (where r.status in ('succeeded', 'timed_out')) as p99
          from (select h.status, h.attempt, h.finished_at - h.started_at as took
                  from pgcron.runs h
                 where h.job_id = j.id and h.status not in ('queued', 'running')
                 order by h.scheduled_for desc, h.backfill desc, h.attempt desc
                 limit 100) r) f
