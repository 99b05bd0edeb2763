-- Is all well? Row: counts, and what is overdue: due for longer than late_after (a minute where a job does not say) although
-- nothing holds it back: neither a pause nor a running run of its own job.
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as now, s.paused from pgcron.settings s
), overdue as (
    (select r.job_name, r.run_at as due_at
       from clock, pgcron.runs r
       join pgcron.jobs j on j.id = r.job_id
       left join pgcron.queues q on q.name = r.queue
      where not clock.paused and q.paused is not true and r.status = 'queued'
        and r.run_at < clock.now - coalesce(j.late_after, interval '1 minute')
        and not exists (select from pgcron.runs b where b.job_id = r.job_id and b.status = 'running')
      order by r.run_at
      limit 1000)
    union all
    (select j.name, j.next_run_at
       from clock, pgcron.jobs j
      where not clock.paused and j.enabled and j.next_run_at <= coalesce(%(now)s::timestamptz, now())
        and j.next_run_at < clock.now - coalesce(j.late_after, interval '1 minute')
      order by j.next_run_at
      limit 1000)
)
select clock.now, clock.paused,
       (select count(*) from pgcron.workers w where w.ended_at is null and w.heartbeat_at >= clock.now - w.lease) as workers_alive,
       (select count(*) from pgcron.workers w where w.ended_at is null and w.heartbeat_at < clock.now - w.lease) as workers_silent,
       (select coalesce(sum(w.slots), 0) from pgcron.workers w where w.ended_at is null and w.heartbeat_at >= clock.now - w.lease) as slots,
       (select count(*) from pgcron.jobs j where j.enabled and (j.paused_until is null or j.paused_until <= clock.now)) as jobs_enabled,
       (select count(*) from pgcron.jobs j where not j.enabled or j.paused_until > clock.now) as jobs_paused,
       (select count(*) from pgcron.jobs j where j.problem is not null) as jobs_problem,
       (select count(*) from pgcron.runs r where r.status = 'queued' and r.run_at <= clock.now) as queued_due,
       (select count(*) from pgcron.runs r where r.status = 'queued' and r.run_at > clock.now) as queued_later,
       (select count(*) from pgcron.runs r where r.status = 'running') as running,
       (select count(*) from pgcron.runs r
         where r.status in ('failed', 'timed_out', 'lost') and r.finished_at > clock.now - interval '1 day') as failures_last_day,
       (select count(*) from overdue) as overdue,
       (select due_at from overdue order by due_at limit 1) as oldest_overdue_at,
       (select job_name from overdue order by due_at limit 1) as oldest_overdue_job,
       (select count(*) from pgcron.incidents i where i.closed_at is null) as incidents_open,
       (select count(*) from pgcron.channels c where c.enabled) as channels,
       -- Given up since yesterday, or tried in vain for a quarter of an hour.
       (select count(*) from pgcron.alerts a where a.given_up_at is not null and a.given_up_at > clock.now - interval '1 day')
       + (select count(*) from pgcron.alerts a
           where a.sent_at is null and a.given_up_at is null and a.error is not null
             and a.first_tried_at < clock.now - interval '15 minutes') as alerts_undelivered
  from clock
