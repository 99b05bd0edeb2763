-- What became of the occurrences of one job in [from, to): every attempt, and the missed rows whose range reaches into it.
-- At most `limit`, oldest first.
select r.id, r.status, r.trigger, r.scheduled_for, r.run_at, r.attempt, r.backfill, r.reason, r.created_at, r.started_at,
       r.finished_at, r.exit_code, r.error, w.name as worker, r.missed_count, r.missed_until, r.cancel_requested_at
  from pgcron.runs r
  left join pgcron.workers w on w.id = r.worker_id
 where r.job_id = %(job_id)s and r.scheduled_for < %(to)s
   and (r.scheduled_for >= %(from)s or (r.status = 'missed' and r.missed_until >= %(from)s))
 order by r.scheduled_for, r.backfill, r.attempt
 limit %(limit)s
