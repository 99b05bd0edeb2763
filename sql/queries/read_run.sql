-- Everything about one run but its output. No row: there is no such run.
select r.id, r.job_id, r.job_name, j.timezone, r.kind, r.queue, r.priority, r.trigger, r.scheduled_for, r.run_at, r.attempt,
       j.max_attempts, r.status, r.reason, r.created_at, r.started_at, r.finished_at, r.worker_id, w.name as worker, r.exit_code,
       r.error, r.progress, r.state, r.result, r.output_bytes, r.output_truncated, r.missed_count, r.missed_until,
       r.parent_run_id, r.backfill, r.args, r.cancel_requested_at
  from pgcron.runs r
  left join pgcron.jobs j on j.id = r.job_id
  left join pgcron.workers w on w.id = r.worker_id
 where r.id = %(run_id)s
