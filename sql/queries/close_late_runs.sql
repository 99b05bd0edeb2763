-- Start deadline: queued -> missed, for scheduled runs that waited longer for a free worker than their job's catch-up window
-- allows (60 seconds with catch_up skip). Claims pass them over already. Row: how many.
with late as materialized (
    select r.id
      from pgcron.jobs j
     cross join lateral (
        select q.id from pgcron.runs q
         where q.job_id = j.id and q.status = 'queued' and q.trigger = 'schedule'
           and q.run_at < coalesce(%(now)s::timestamptz, now()) - coalesce(j.catch_up_window, interval '60 seconds')
         order by q.id limit 100) r
     where j.catch_up_window is not null or j.catch_up = 'skip'
     limit %(limit)s
), closed as (
    update pgcron.runs r
       set status = 'missed', missed_count = 1, missed_until = scheduled_for, finished_at = coalesce(%(now)s::timestamptz, clock_timestamp()),
           reason = 'it waited for a free worker until it was too late to start'
     where r.id = any(array(select id from late)) and r.status = 'queued'
    returning r.id
)
select count(*)::int from closed
