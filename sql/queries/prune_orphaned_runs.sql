-- Prune what deleted jobs have left: final runs past their time, in a batch. Row: how many were removed.
with doomed as materialized (
    select r.id
      from pgcron.runs r
     where r.job_id is null
       and r.scheduled_for < coalesce(%(now)s::timestamptz, now()) - (select keep_for from pgcron.settings)
       and r.finished_at < coalesce(%(now)s::timestamptz, now()) - (select keep_for from pgcron.settings)
     order by r.scheduled_for
     limit %(limit)s
       for update skip locked
), removed as (
    delete from pgcron.runs r where r.id = any(array(select id from doomed)) returning r.id
)
select count(*)::int from removed
