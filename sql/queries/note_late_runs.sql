-- Watch: jobs whose oldest waiting occurrence should have started late_after ago, also where nobody fires or takes it, become
-- incidents, where they are none yet. Row: how many.
with late as materialized (
    select j.id, (
           select min(r.id) from pgcron.runs r
            where r.job_id = j.id and r.status = 'queued' and r.run_at <= coalesce(%(now)s::timestamptz, now()) - j.late_after) as run_id
      from pgcron.jobs j
     where j.late_after is not null and j.enabled
       and (j.paused_until is null or j.paused_until <= coalesce(%(now)s::timestamptz, now()))
       and not exists (select from pgcron.incidents i where i.job_id = j.id and i.kind = 'late' and i.closed_at is null)
       and (j.planned and j.next_run_at <= coalesce(%(now)s::timestamptz, now()) - j.late_after
            or exists (
                select from pgcron.runs r
                 where r.job_id = j.id and r.status = 'queued'
                   and r.run_at <= coalesce(%(now)s::timestamptz, now()) - j.late_after))
       and not (select paused from pgcron.settings)
     order by j.id
     limit %(limit)s
), opened as materialized (
    select pgcron.open_incident(j, 'late', 'late', r, coalesce(%(now)s::timestamptz, clock_timestamp()))
      from late l join pgcron.jobs j on j.id = l.id left join pgcron.runs r on r.id = l.run_id
)
select count(*)::int from opened
