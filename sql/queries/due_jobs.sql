-- Fire, first step: locks jobs whose next_run_at has come, with what planning must know of their live runs and calendars;
-- the last columns are the time that planning goes by, and a setting: this
-- transaction need not be flushed by itself, since nothing begins before a claim, whose COMMIT flushes all before it.
-- A time that newer zone data has planned is left to a living worker that has it; where there is none, any will do.
-- FOR NO KEY UPDATE: a finishing run's insert must not wait on the foreign key. No row: nothing due, or others have it.
-- Locks come first, in a materialized set: nothing is looked up for jobs that others have locked.
with due as materialized (
    select j.* from pgcron.jobs j
     where j.enabled and j.next_run_at <= coalesce(%(now)s::timestamptz, now())
       and not coalesce((select paused from pgcron.settings), false)
       and (coalesce(j.zone_data, '') collate "C" <= %(zone_data)s collate "C"
            or j.zone_data collate "C" > (select coalesce(max(w.zone_data collate "C"), '') from pgcron.workers w
                                           where w.ended_at is null and not w.stopping))
     order by j.next_run_at, j.id
     limit %(limit)s
       for no key update of j skip locked
)
select d.id, d.name, d.schedule, d.timezone, d.planned, d.anchored_at, d.next_run_at, d.overlap, d.max_running, d.catch_up,
       d.catch_up_window, d.catch_up_limit, d.dst_gap, d.dst_repeat, d.jitter, d.starts_at, d.ends_at, d.paused_until,
       coalesce(live.running, '{}') as running_run_ids, live.queued as queued_run_id, live.queued_count,
       case when d.exclude <> '{}' then (
           select jsonb_agg(jsonb_build_array(c.calendar, c.first_day, c.last_day, c.label) order by c.first_day)
             from pgcron.calendar_days c where c.calendar = any(d.exclude)) end as excluded,
       d.fired_local,
       case when d.schedule ~* 'after\s+finish' then (
           select r.finished_at from pgcron.runs r where r.job_id = d.id and r.started_at is not null and r.finished_at is not null
            order by r.scheduled_for desc, r.attempt desc limit 1) end as last_finished_at,
       d.fired_until, coalesce(d.zone_data <> %(zone_data)s, false) as other_zone_data,
       coalesce(%(now)s::timestamptz, now()) as now, (select set_config('synchronous_commit', 'off', true))
  from due d
  cross join lateral (
    -- Only runs_live serves this condition by the job, also in a plan that was made while the table was empty: one that
    -- asks for a status alone may be planned as a walk over all queued runs, once for each job.
    select (array_agg(r.id order by r.id) filter (where r.status = 'running'))[:100] as running,
           min(r.id) filter (where r.status = 'queued') as queued, count(*) filter (where r.status = 'queued') as queued_count
      from pgcron.runs r
     where r.job_id = d.id and r.status in ('queued', 'running') and (d.overlap <> 'allow' or d.schedule ~* 'after\s+finish')) live
 order by d.next_run_at, d.id
