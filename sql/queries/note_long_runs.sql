-- Watch: running runs that take longer than long_after, or three times as long as any of the job's last twenty (and ten minutes
-- at least), become incidents of their jobs, where they are none yet. Row: how many.
with running as materialized (
    -- Apart, and without an order: whoever wants them by id would read the history to find them.
    select r.id, r.job_id, r.started_at from pgcron.runs r where r.status = 'running'
), long as materialized (
    select r.id, r.job_id
      from running
     -- `offset 0`: one job after the other by its id, never all of them.
     cross join lateral (
            select from pgcron.jobs j
             where j.id = running.job_id
               and coalesce(%(now)s::timestamptz, now()) - running.started_at > coalesce(j.long_after, (
                    select greatest(3 * max(p.finished_at - p.started_at), interval '10 minutes')
                      from (select finished_at, started_at from pgcron.runs p
                             where p.job_id = j.id and p.status = 'succeeded'
                             order by p.scheduled_for desc
                             limit 20) as p
                    having count(*) > 0))
               and not exists (select from pgcron.incidents i where i.job_id = j.id and i.kind = 'long' and i.closed_at is null)
            offset 0) as too_long
      join pgcron.runs r on r.id = running.id
     where r.status = 'running'
     order by running.id
     limit %(limit)s
       for no key update of r skip locked
), marked as (
    -- So that its end closes the incident.
    update pgcron.runs set in_incident = true where id = any(array(select id from long))
), opened as materialized (
    select pgcron.open_incident(j, 'long', 'long', r, coalesce(%(now)s::timestamptz, clock_timestamp()))
      from (select distinct on (job_id) id, job_id from long order by job_id, id) as l
      join pgcron.jobs j on j.id = l.job_id
      join pgcron.runs r on r.id = l.id
)
select count(*)::int from opened
