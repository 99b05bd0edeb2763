-- Watch: open incidents that no run will close: late ones of jobs that were disabled or paused, or that have started since and
-- have nothing overdue; long ones whose run is over. Row: how many.
with settled as materialized (
    select i.job_id, i.kind, case when i.kind = 'late' and not j.enabled then 'the job was disabled'
                                  when i.kind = 'late' and j.paused_until > coalesce(%(now)s::timestamptz, now()) then 'the job was paused' end as because
      from pgcron.incidents i
     -- By its key for each: there are few incidents and many jobs.
     cross join lateral (select * from pgcron.jobs where id = i.job_id offset 0) j
     where i.closed_at is null and i.kind in ('late', 'long')
       and case i.kind
           when 'long' then not exists (select from pgcron.runs r where r.id = i.last_run_id and r.status = 'running')
           when 'late' then not j.enabled or j.paused_until > coalesce(%(now)s::timestamptz, now())
                or not exists (
                    select from pgcron.runs r
                     where r.job_id = j.id and r.status = 'queued'
                       and r.run_at <= coalesce(%(now)s::timestamptz, now()) - coalesce(j.late_after, '0'))
                   and (j.next_run_at is null or j.next_run_at > coalesce(%(now)s::timestamptz, now()) - coalesce(j.late_after, '0'))
                   and exists (
                    select from (select r.started_at from pgcron.runs r where r.job_id = j.id order by r.scheduled_for desc limit 20) as latest
                     where latest.started_at > i.opened_at)
           else false end
     order by i.id
     limit %(limit)s
       for no key update of i skip locked
), closed as materialized (
    select pgcron.close_incident(j, s.kind, null, coalesce(%(now)s::timestamptz, clock_timestamp()), s.because)
      from settled s join pgcron.jobs j on j.id = s.job_id
)
select count(*)::int from closed
