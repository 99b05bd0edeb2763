-- Prune the next `jobs` jobs after an id: final runs past their time, at most `limit` a job; never the last one of a job,
-- never one that is queued or running. Row: the last job looked at (null: there are no more), and how many were removed.
with clock as (
    select coalesce(%(now)s::timestamptz, now()) as now
), chosen as materialized (
    select j.id, j.history, clock.now - coalesce(j.keep_for, s.keep_for) as before, clock.now - interval '1 hour' as hour_ago
      from pgcron.jobs j, pgcron.settings s, clock
     where j.id > %(after_id)s
     order by j.id
     limit %(jobs)s
), doomed as materialized (
    select past.id
      from chosen c
     cross join lateral (
        select r.id
          from pgcron.runs r
         where r.job_id = c.id
           and r.scheduled_for < case when c.history = 'failures' then greatest(c.hour_ago, c.before) else c.before end
           and (r.finished_at < c.before
                or c.history = 'failures' and r.status in ('succeeded', 'skipped') and r.finished_at < c.hour_ago)
           and r.id <> (select l.id from pgcron.runs l
                         where l.job_id = c.id and l.status not in ('queued', 'running')
                         order by l.scheduled_for desc, l.attempt desc limit 1)
         order by r.scheduled_for
         limit %(limit)s
           for update skip locked) past
), removed as (
    delete from pgcron.runs r where r.id = any(array(select id from doomed)) returning r.id
)
select (select max(id) from chosen), (select count(*)::int from removed)
