-- The definitions of jobs, with what sync knows of them: those of one source and those of these names, or all where both are
-- null. No row means that there is none.
select j.id, j.name, j.kind, j.command, j.args, j.schedule, j.timezone, j.enabled, j.queue, j.priority, j.starts_at, j.ends_at,
       j.exclude, j.jitter, j.timeout, j.kill_grace, j.overlap, j.max_running, j.catch_up, j.catch_up_window,
       j.catch_up_limit, j.max_attempts, j.retry_delay, j.retry_backoff, j.retry_max_delay, j.memory_limit_mb,
       j.output_limit_kb, j.env, j.env_from, j.working_dir, j.late_after, j.long_after, j.history, j.keep_for,
       j.pause_after, j.redact, j.heartbeat_url, j.idempotent,
       j.check_ignore, j.tags, j.dst_gap, j.dst_repeat, j.source, j.synced, j.removed_at,
       j.updated_at
  from pgcron.jobs j
 where %(source)s::text is null and %(names)s::text[] is null
    or j.source = %(source)s and j.synced is not null
    or j.name = any(%(names)s::text[])
 order by j.name
