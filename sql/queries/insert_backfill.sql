-- Backfill: nothing -> queued, for given nominal times of one job, oldest first. Times that have succeeded, are queued or are
-- running stay as they are, and so does what an earlier backfill has made. Row: how many were made.
with made as (
    insert into pgcron.runs (job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at, backfill, max_running)
    select j.id, j.name, j.kind, j.queue, j.priority, 'backfill', t.at, coalesce(%(now)s::timestamptz, clock_timestamp()), true,
           case when %(overlap)s = 'allow' then j.max_running else 1 end
      from unnest(%(times)s::timestamptz[]) with ordinality as t(at, position), pgcron.jobs j
     where j.id = %(job_id)s
       and not exists (select from pgcron.runs r where r.job_id = j.id and r.scheduled_for = t.at
                          and r.status in ('succeeded', 'queued', 'running'))
     order by t.position
    on conflict (job_id, scheduled_for, backfill, attempt) do nothing
    returning id
)
select count(*)::int from made
