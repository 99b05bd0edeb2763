-- Edit many jobs as a whole: a JSON array of definitions, each unless somebody else has changed its job since. What a
-- file had no longer comes back. A trigger re-anchors schedules that have changed. A row a job: name and anchored_at. A
-- missing row: it was changed or removed.
update pgcron.jobs t
   set kind = j.kind, command = j.command, args = j.args, schedule = j.schedule, timezone = j.timezone, enabled = j.enabled,
       queue = j.queue, priority = j.priority, starts_at = j.starts_at, ends_at = j.ends_at, exclude = j.exclude,
       jitter = j.jitter, timeout = j.timeout, kill_grace = j.kill_grace, overlap = j.overlap, max_running = j.max_running,
       catch_up = j.catch_up, catch_up_window = j.catch_up_window, catch_up_limit = j.catch_up_limit,
       max_attempts = j.max_attempts, retry_delay = j.retry_delay, retry_backoff = j.retry_backoff,
       retry_max_delay = j.retry_max_delay, memory_limit_mb = j.memory_limit_mb, output_limit_kb = j.output_limit_kb,
       env = j.env, env_from = j.env_from, working_dir = j.working_dir, late_after = j.late_after,
       long_after = j.long_after, history = j.history, keep_for = j.keep_for, pause_after = j.pause_after,
       redact = j.redact, heartbeat_url = j.heartbeat_url, idempotent = j.idempotent, check_ignore = j.check_ignore, tags = j.tags, dst_gap = j.dst_gap, dst_repeat = j.dst_repeat,
       source = j.source, synced = j.synced, removed_at = null
  from jsonb_to_recordset(%(jobs)s::jsonb) as j(
        id integer, read_at timestamptz, name text, kind text, command text, args jsonb, schedule text, timezone text,
        enabled boolean, queue text, priority smallint, starts_at timestamptz, ends_at timestamptz, exclude text[],
        jitter interval, timeout interval, kill_grace interval, overlap text, max_running integer, catch_up text,
        catch_up_window interval, catch_up_limit integer, max_attempts integer, retry_delay interval,
        retry_backoff double precision, retry_max_delay interval, memory_limit_mb integer, output_limit_kb integer,
        env jsonb, env_from text[], working_dir text, late_after interval, long_after interval, history text,
        keep_for interval, pause_after integer, redact text[], heartbeat_url text, idempotent boolean,
        check_ignore jsonb, tags text[], dst_gap text,
        dst_repeat text, source text, synced jsonb)
 where t.id = j.id and t.updated_at = j.read_at
returning t.name, t.anchored_at
