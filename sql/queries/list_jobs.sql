-- Jobs by name, at most `limit`, each with its newest run (null: it has none). A null filter takes all.
-- next_run_at of a row that no worker has planned yet says nothing: it is its anchor.
select j.id, j.name, j.kind, j.schedule, j.timezone, j.queue, j.tags, j.enabled, j.paused_until, j.planned, j.anchored_at,
       j.starts_at, j.ends_at, j.dst_gap, j.dst_repeat, j.next_run_at, j.problem, last.id as last_run_id,
       last.status as last_status, coalesce(last.finished_at, last.started_at, last.run_at) as last_at
  from (select * from pgcron.jobs
         where (%(queue)s::text is null or queue = %(queue)s)
           and (%(tag)s::text is null or %(tag)s = any(tags))
           and (%(kind)s::text is null or kind = %(kind)s)
           and (not %(problem)s or problem is not null)
         order by name
         limit %(limit)s) j
  left join lateral (
        select r.id, r.status, r.run_at, r.started_at, r.finished_at
          from pgcron.runs r
         where r.job_id = j.id
         order by r.scheduled_for desc, r.attempt desc
         limit 1) last on true
 order by j.name
