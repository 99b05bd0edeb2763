-- Add many jobs: a JSON array of whole definitions. A row a job: name and anchored_at, from which its schedule counts.
-- A missing row: another job has this name.
insert into pgcron.jobs (name, kind, command, args, schedule, timezone, enabled, queue, priority, starts_at, ends_at,
                         exclude, jitter, timeout, kill_grace, overlap, max_running, catch_up, catch_up_window,
                         catch_up_limit, max_attempts, retry_delay, retry_backoff, retry_max_delay, memory_limit_mb,
                         output_limit_kb, env, env_from, working_dir, late_after, long_after, history, keep_for,
                         pause_after, redact, heartbeat_url, idempotent, check_ignore, tags, dst_gap, dst_repeat, source, synced)
select j.name, j.kind, j.command, j.args, j.schedule, j.timezone, j.enabled, j.queue, j.priority, j.starts_at, j.ends_at,
       j.exclude, j.jitter, j.timeout, j.kill_grace, j.overlap, j.max_running, j.catch_up, j.catch_up_window,
       j.catch_up_limit, j.max_attempts, j.retry_delay, j.retry_backoff, j.retry_max_delay, j.memory_limit_mb,
       j.output_limit_kb, j.env, j.env_from, j.working_dir, j.late_after, j.long_after, j.history, j.keep_for,
       j.pause_after, j.redact, j.heartbeat_url, j.idempotent, j.check_ignore, j.tags, j.dst_gap, j.dst_repeat, j.source, j.synced
  from jsonb_to_recordset(%(jobs)s::jsonb) as j(
        name text, kind text, command text, args jsonb, schedule text, timezone text, enabled boolean, queue text,
        priority smallint, starts_at timestamptz, ends_at timestamptz, exclude text[], jitter interval, timeout interval,
        kill_grace interval, overlap text, max_running integer, catch_up text, catch_up_window interval,
        catch_up_limit integer, max_attempts integer, retry_delay interval, retry_backoff double precision,
        retry_max_delay interval, memory_limit_mb integer, output_limit_kb integer, env jsonb, env_from text[],
        working_dir text, late_after interval, long_after interval, history text, keep_for interval, pause_after integer,
        redact text[], heartbeat_url text, idempotent boolean, check_ignore jsonb, tags text[], dst_gap text, dst_repeat text, source text, synced jsonb)
on conflict (name) do nothing
returning name, anchored_at
