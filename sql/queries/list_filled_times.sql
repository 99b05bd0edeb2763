-- Before a backfill: what there is already of the occurrences of one job in [from, to). Rows: the nominal time, whether it has
-- succeeded, whether a run of it is queued or running, and whether an earlier backfill has made one.
select r.scheduled_for, bool_or(r.status = 'succeeded'), bool_or(r.status in ('queued', 'running')),
       bool_or(r.backfill and r.attempt = 1)
  from pgcron.runs r
 where r.job_id = %(job_id)s and r.scheduled_for >= %(from)s and r.scheduled_for < %(to)s and r.status <> 'missed'
 group by r.scheduled_for
having bool_or(r.status in ('succeeded', 'queued', 'running')) or bool_or(r.backfill)
 order by r.scheduled_for
