-- Resume with catch-up, first step: locks a job, with what planning must know of its live runs and calendars (as due_jobs),
-- and the time during which it was held, disabled or paused: after held_since, up to held_until. Null: it is not held, and
-- no pause has ended by itself since its schedule last changed. A pause until nine lets nine o'clock through. No row: no such job.
select j.id, j.name, j.schedule, j.timezone, false as planned, j.anchored_at, j.anchored_at as next_run_at, j.overlap, j.max_running, j.catch_up,
       j.catch_up_window, j.catch_up_limit, j.dst_gap, j.dst_repeat, j.jitter, j.starts_at, j.ends_at, null::timestamptz as paused_until,
       array(select r.id from pgcron.runs r where r.job_id = j.id and r.status = 'running' order by r.id limit 100) as running_run_ids,
       (select min(r.id) from pgcron.runs r where r.job_id = j.id and r.status = 'queued') as queued_run_id,
       (select count(*) from (select from pgcron.runs r where r.job_id = j.id and r.status = 'queued' limit j.catch_up_limit) q) as queued_count,
       case when j.exclude <> '{}' then (
           select jsonb_agg(jsonb_build_array(d.calendar, d.first_day, d.last_day, d.label) order by d.first_day)
             from pgcron.calendar_days d where d.calendar = any(j.exclude)) end as excluded,
       null::text as fired_local, null::timestamptz as last_finished_at, null::timestamptz as fired_until, false as other_zone_data,
       clock.now, case when not j.enabled or j.paused_until > j.anchored_at then j.anchored_at end as held_since,
       case when j.enabled and j.paused_until <= clock.now then j.paused_until - interval '1 microsecond' else clock.now end as held_until
  from pgcron.jobs j cross join (select coalesce(%(now)s::timestamptz, now()) as now) clock
 where j.name = %(name)s
   for no key update of j
