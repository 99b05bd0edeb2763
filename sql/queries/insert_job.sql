-- Add a job. Row: id and anchored_at, from which its schedule counts. No row: another job has this name.
insert into pgcron.jobs (name, kind, command, args, schedule, timezone, enabled, queue, priority, starts_at, ends_at, jitter, timeout,
                         kill_grace, overlap, max_running, catch_up, catch_up_window, catch_up_limit, max_attempts, retry_delay,
                         retry_backoff, retry_max_delay, memory_limit_mb, output_limit_kb, env, env_from, working_dir, keep_for,
                         tags, source, dst_gap, dst_repeat, exclude, late_after, long_after, pause_after, redact,
                         heartbeat_url)
values (%(name)s, %(kind)s, %(command)s, %(args)s::jsonb, %(schedule)s, %(timezone)s, %(enabled)s, %(queue)s, %(priority)s,
        %(starts_at)s, %(ends_at)s, %(jitter)s, %(timeout)s, %(kill_grace)s, %(overlap)s, %(max_running)s, %(catch_up)s,
        %(catch_up_window)s, %(catch_up_limit)s, %(max_attempts)s, %(retry_delay)s, %(retry_backoff)s, %(retry_max_delay)s,
        %(memory_limit_mb)s, %(output_limit_kb)s, %(env)s::jsonb, %(env_from)s::text[], %(working_dir)s, %(keep_for)s,
        %(tags)s::text[], %(source)s, %(dst_gap)s, %(dst_repeat)s, %(exclude)s::text[], %(late_after)s, %(long_after)s,
        %(pause_after)s, %(redact)s::text[], %(heartbeat_url)s)
on conflict (name) do nothing
returning id, anchored_at
