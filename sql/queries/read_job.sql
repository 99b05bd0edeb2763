-- One job by its name, with how many of its runs are queued and running. No row: there is no such job.
select j.id, j.name, j.kind, j.command, j.args, j.schedule, j.timezone, j.enabled, j.paused_until, j.queue, j.priority, j.starts_at,
       j.ends_at, j.exclude, j.jitter, j.timeout, j.kill_grace, j.overlap, j.max_running, j.catch_up, j.catch_up_window, j.catch_up_limit,
       j.max_attempts, j.retry_delay, j.retry_backoff, j.retry_max_delay, j.memory_limit_mb, j.output_limit_kb, j.env, j.env_from,
       j.working_dir, j.late_after, j.long_after, j.pause_after, j.paused_reason, j.redact, j.heartbeat_url, j.history, j.keep_for, j.muted_until, j.tags, j.owner, j.source, j.synced, j.removed_at, j.idempotent,
       j.check_ignore, j.dst_gap, j.dst_repeat, j.planned, j.anchored_at, j.fired_until, j.fired_local, j.next_run_at, j.zone_data, j.problem, j.created_at,
       j.updated_at,
       (select count(*) from pgcron.runs r where r.job_id = j.id and r.status = 'queued') as queued,
       (select count(*) from pgcron.runs r where r.job_id = j.id and r.status = 'running') as running
  from pgcron.jobs j
 where j.name = %(name)s
