-- Edit a job as a whole, unless somebody else has changed its definition since it was read. A trigger re-anchors the schedule
-- where that has changed. Row: anchored_at. No row: it was changed or removed.
update pgcron.jobs
   set kind = %(kind)s, command = %(command)s, args = %(args)s::jsonb, schedule = %(schedule)s,
       timezone = %(timezone)s, enabled = %(enabled)s, queue = %(queue)s, priority = %(priority)s,
       starts_at = %(starts_at)s, ends_at = %(ends_at)s, exclude = %(exclude)s::text[], jitter = %(jitter)s,
       timeout = %(timeout)s, kill_grace = %(kill_grace)s, overlap = %(overlap)s, max_running = %(max_running)s,
       catch_up = %(catch_up)s, catch_up_window = %(catch_up_window)s, catch_up_limit = %(catch_up_limit)s,
       max_attempts = %(max_attempts)s, retry_delay = %(retry_delay)s, retry_backoff = %(retry_backoff)s,
       retry_max_delay = %(retry_max_delay)s, memory_limit_mb = %(memory_limit_mb)s,
       output_limit_kb = %(output_limit_kb)s, env = %(env)s::jsonb, env_from = %(env_from)s::text[],
       working_dir = %(working_dir)s, keep_for = %(keep_for)s, tags = %(tags)s::text[], dst_gap = %(dst_gap)s,
       dst_repeat = %(dst_repeat)s, late_after = %(late_after)s, long_after = %(long_after)s,
       pause_after = %(pause_after)s, redact = %(redact)s::text[], heartbeat_url = %(heartbeat_url)s
 where id = %(id)s and updated_at = %(read_at)s
returning anchored_at
