-- Fire, first step: locks jobs whose next_run_at has come, with what planning must know of their live runs and calendars;
-- the last columns are the time that planning goes by, and a setting: this
-- transaction need not be flushed by itself, since nothing begins before a claim, whose COMMIT flushes all before it.
-- A time that newer zone data has planned is left to a living worker that has it; where there is none, any will do.
-- FOR NO KEY UPDATE: a finishing run's insert must not wait on the foreign key. No row: nothing due, or others have it.
select j.id, j.name, j.schedule, j.timezone, j.planned, j.anchored_at, j.next_run_at, j.overlap, j.max_running, j.catch_up,
       j.catch_up_window, j.catch_up_limit, j.dst_gap, j.dst_repeat, j.jitter, j.starts_at, j.ends_at, j.paused_until,
       case when j.overlap <> 'allow' or j.schedule ~* 'after\s+finish' then array(
           select r.id from pgcron.runs r where r.job_id = j.id and r.status = 'running' order by r.id limit 100) else '{}' end as running_run_ids,
       case when j.overlap <> 'allow' or j.schedule ~* 'after\s+finish' then (
           select min(r.id) from pgcron.runs r where r.job_id = j.id and r.status = 'queued') end as queued_run_id,
       case when j.overlap = 'queue_all' then (
           select count(*) from (select from pgcron.runs r where r.job_id = j.id and r.status = 'queued' limit j.catch_up_limit) q)
           else 0 end as queued_count,
       case when j.exclude <> '{}' then (
           select jsonb_agg(jsonb_build_array(d.calendar, d.first_day, d.last_day, d.label) order by d.first_day)
             from pgcron.calendar_days d where d.calendar = any(j.exclude)) end as excluded,
       j.fired_local,
       case when j.schedule ~* 'after\s+finish' then (
           select r.finished_at from pgcron.runs r where r.job_id = j.id and r.started_at is not null and r.finished_at is not null
            order by r.scheduled_for desc, r.attempt desc limit 1) end as last_finished_at,
       j.fired_until, coalesce(j.zone_data <> %(zone_data)s, false) as other_zone_data,
       coalesce(%(now)s::timestamptz, now()) as now, (select set_config('synchronous_commit', 'off', true))
  from pgcron.jobs j
 where j.enabled and j.next_run_at <= coalesce(%(now)s::timestamptz, now())
   and not coalesce((select paused from pgcron.settings), false)
   and (coalesce(j.zone_data, '') collate "C" <= %(zone_data)s collate "C"
        or j.zone_data collate "C" > (select coalesce(max(w.zone_data collate "C"), '') from pgcron.workers w
                                       where w.ended_at is null and not w.stopping))
 order by j.next_run_at, j.id
 limit %(limit)s
   for no key update of j skip locked
