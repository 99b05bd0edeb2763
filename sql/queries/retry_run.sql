-- Retry by hand: one more attempt at the occurrence of a run that has ended without success, with its arguments and what it
-- has saved. Row: the id of the new run, its attempt. No row: there is no such run, or it cannot be tried again (see read_run).
with target as materialized (
    select r.id, r.job_id, r.scheduled_for, r.backfill, r.args, r.state, r.max_running from pgcron.runs r
     where r.id = %(run_id)s and r.job_id is not null
       and r.status in ('failed', 'timed_out', 'cancelled', 'interrupted', 'lost', 'skipped', 'missed')
), job as materialized (
    select * from pgcron.jobs where id = (select job_id from target) for no key update
), last as materialized (
    select r.attempt, r.status from pgcron.runs r, target t
     where r.job_id = t.job_id and r.scheduled_for = t.scheduled_for and r.backfill = t.backfill
       and (select count(*) from job) = 1
     order by r.attempt desc
     limit 1
)
insert into pgcron.runs (job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at, attempt, backfill, parent_run_id,
                         args, state, max_running)
select j.id, j.name, j.kind, j.queue, j.priority, 'manual', t.scheduled_for, coalesce(%(now)s::timestamptz, clock_timestamp()),
       l.attempt + 1, t.backfill, t.id, t.args, t.state,
       case when t.backfill then t.max_running when j.overlap = 'allow' then j.max_running else 1 end
  from target t, job j, last l
 where l.status not in ('queued', 'running', 'succeeded')
returning id, attempt
