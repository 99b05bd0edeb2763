-- What bears on a job beside its own row: whether everything or its queue is paused, how long its history is kept, how many
-- workers that would take it have been heard of within their lease, and its excluded days. Row: one; none: no such job.
select coalesce(s.paused, false) as paused, coalesce(q.paused, false) as queue_paused, coalesce(j.keep_for, s.keep_for) as keep_for,
       (select count(*) from pgcron.workers w
         where w.ended_at is null and not w.stopping and (w.queues is null or j.queue = any(w.queues)) and j.kind = any(w.kinds)
           and w.heartbeat_at >= coalesce(%(now)s::timestamptz, now()) - w.lease) as workers,
       (select jsonb_agg(jsonb_build_array(d.calendar, d.first_day, d.last_day, d.label) order by d.first_day)
          from pgcron.calendar_days d where d.calendar = any(j.exclude)) as excluded
  from pgcron.jobs j
  left join pgcron.settings s on true
  left join pgcron.queues q on q.name = j.queue
 where j.id = %(job_id)s
