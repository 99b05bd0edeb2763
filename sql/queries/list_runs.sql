-- Runs of all jobs, newest first, at most `limit`. A null filter takes all.
-- `since` has no index of its own. Ids grow with time, so the first id worth reading is found by bisection (32 look-ups
-- for any table), a minute early: a row's created_at is when its transaction began.
with recursive bisection (low, high, step) as (
    select coalesce((select min(id) from pgcron.runs), 0),
           case when %(since)s::timestamptz is null then coalesce((select min(id) from pgcron.runs), 0)
                else coalesce((select max(id) from pgcron.runs), 0) + 1 end, 0
    union all
    select case when middle.is_old then middle.id + 1 else b.low end, case when middle.is_old then b.high else b.low + (b.high - b.low) / 2 end, b.step + 1
      from bisection b
     cross join lateral (
        select r.id, r.created_at < %(since)s::timestamptz - interval '1 minute' as is_old
          from pgcron.runs r where r.id >= b.low + (b.high - b.low) / 2 order by r.id limit 1) middle
     where b.low < b.high and b.step < 64
)
select r.id, r.job_id, r.job_name, j.timezone, r.kind, r.queue, r.trigger, r.scheduled_for, r.run_at, r.attempt, r.status, r.reason,
       r.created_at, r.started_at, r.finished_at, r.exit_code, r.error, r.worker_id, w.name as worker, r.missed_count, r.missed_until,
       r.backfill, r.progress
  from pgcron.runs r
  left join pgcron.jobs j on j.id = r.job_id
  left join pgcron.workers w on w.id = r.worker_id
 where r.id >= (select low from bisection order by step desc limit 1)
   and (%(since)s::timestamptz is null or r.created_at >= %(since)s)
   and (%(status)s::text is null or r.status = %(status)s)
 order by r.id desc
 limit %(limit)s
