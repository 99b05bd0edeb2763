-- compatible
-- What people call from psql, an application or its migrations, in place of writing rows. Nothing is security definer: a role
-- needs EXECUTE on a function and the rights on the tables behind it; row security, where somebody has set it up, holds here too.
--   schedule, unschedule         a job by its name: made, changed, removed
--   run_job, cancel_run          one run
--   pause, resume, mute          a job is held, goes on, is quiet
--   job_status, run_history      views: how jobs are doing, and what they did
-- And what `pgcron-runner check` is told about a job: idempotent, check_ignore.

alter table pgcron.jobs
    add column idempotent boolean not null default false,
    add column check_ignore jsonb not null default '{}' check (jsonb_typeof(check_ignore) = 'object');
comment on column pgcron.jobs.idempotent is 'Somebody has made sure that running it twice, or twice at once, does no harm. Only pgcron-runner check reads it.';
comment on column pgcron.jobs.check_ignore is 'Rules that pgcron-runner check leaves out for this job, each with the reason: {"PGC202": "the partner counts its days in UTC"}.';

-- ------------------------------------------------------------------------------------------------- jobs

create function pgcron.job_id(job text) returns integer
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    found_id integer;
begin
    select j.id into found_id from pgcron.jobs j where j.name = job;
    if not found then
        raise exception 'name: there is no job %', coalesce(quote_literal(job), 'null') using errcode = 'no_data_found', column = 'name',
            detail = 'Names are compared letter by letter. Nothing was changed.',
            hint = coalesce('Did you mean ' || (
                select quote_literal(j.name) from pgcron.jobs j where j.name ilike '%' || replace(replace(replace(btrim(job), '\', '\\'), '%', '\%'), '_', '\_') || '%' order by length(j.name), j.name limit 1
            ) || '? ', '') || 'select name from pgcron.jobs lists them.';
    end if;
    return found_id;
end $$;
revoke all on function pgcron.job_id(text) from public;
comment on function pgcron.job_id(text) is 'The id of the job of this name; an error with a proposal where there is none. For the other functions of this schema and for your own statements.';

create function pgcron.schedule(name text, schedule text, timezone text, kind text, command text,
                                args jsonb default null, options jsonb default '{}') returns integer
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    -- Whatever else a person may set, as the columns of the table are called.
    settable constant text[] := array(
        select a.attname::text from pg_attribute a
         where a.attrelid = 'pgcron.jobs'::regclass and a.attnum > 0 and not a.attisdropped
           and a.attname <> all ('{id,name,schedule,timezone,kind,command,args,planned,anchored_at,fired_until,fired_local,
                                   next_run_at,zone_data,problem,paused_reason,created_at,updated_at,synced,removed_at}'));
    said jsonb;
    unknown text;
    columns text;
    job_id integer;
    state text; message text; details text; advice text; named text; broken text;
begin
    if jsonb_typeof(coalesce(options, '{}')) <> 'object' then
        raise exception 'options: % is not a JSON object', left(options::text, 100) using errcode = 'invalid_parameter_value',
            detail = 'Its keys are columns of pgcron.jobs. Nothing was changed.', hint = 'Such as {"timeout": "2 hours", "max_attempts": 3}.';
    end if;
    select key into unknown from jsonb_object_keys(coalesce(options, '{}')) as key where key <> all (settable) limit 1;
    if found then
        raise exception 'options: % cannot be set', quote_literal(unknown) using errcode = 'invalid_parameter_value',
            detail = 'What can be set: ' || array_to_string(settable, ', ') || '.', hint = '\d+ pgcron.jobs explains them all.';
    end if;
    -- The trigger asks Postgres, which knows abbreviations too; workers do not take them. The list takes a tenth of a second,
    -- so it is not read for a zone that a worker has taken already.
    if timezone <> 'UTC' and not exists (select from pgcron.jobs j where j.timezone = schedule.timezone and j.planned and j.problem is null)
            and not exists (select from pg_timezone_names z where z.name = schedule.timezone) then
        raise exception 'timezone: % is not a known time zone', quote_literal(timezone)
            using errcode = 'invalid_parameter_value', column = 'timezone',
            detail = 'Exact IANA names are taken, no abbreviations and no offsets. Nothing was changed.',
            hint = coalesce('Did you mean ' || (
                select quote_literal(z.name) from pg_timezone_names z
                 where z.name ~ '/' and z.name !~ '^(posix|right)/' and lower(z.name) like '%' || replace(lower(btrim(schedule.timezone)), ' ', '\_')
                 order by length(z.name), z.name limit 1) || '? ', '') || 'select name from pg_timezone_names lists them.';
    end if;
    said := coalesce(options, '{}') || jsonb_build_object('name', name, 'schedule', schedule, 'timezone', timezone, 'kind', kind, 'command', command)
         || case when args is null then '{}' else jsonb_build_object('args', args) end;
    select string_agg(quote_ident(key), ', ' order by key) into columns from jsonb_object_keys(said) as key;

    execute format('insert into pgcron.jobs (%1$s) select %1$s from jsonb_populate_record(null::pgcron.jobs, $1)
                     where not exists (select from pgcron.jobs where name = $2)
                    on conflict (name) do nothing returning id', columns) into job_id using said, name;
    if job_id is null then
        -- What does not change is not written: no new row version, nobody is woken.
        execute format('update pgcron.jobs j set (%1$s) = (select %1$s from jsonb_populate_record(null::pgcron.jobs, $1))
                         where j.name = $2 and (select row(%2$s)) is distinct from (select row(%1$s) from jsonb_populate_record(null::pgcron.jobs, $1))',
                       columns, (select string_agg('j.' || quote_ident(key), ', ' order by key) from jsonb_object_keys(said) as key))
            using said, name;
        job_id := pgcron.job_id(schedule.name);
    end if;
    return job_id;
exception
    when check_violation or not_null_violation or foreign_key_violation or invalid_parameter_value or data_exception then
        get stacked diagnostics state = returned_sqlstate, message = message_text, details = pg_exception_detail,
            advice = pg_exception_hint, named = column_name, broken = constraint_name;
        -- A constraint says which column it is of; the comment on that says what would be right. The whole row
        -- as a detail may hold secrets.
        if broken <> '' then
            named := coalesce(nullif(named, ''), regexp_replace(broken, '^jobs_|_check$', '', 'g'));
        end if;
        if details like 'Failing row contains%' then
            details := '';
        end if;
        raise exception using errcode = state, message = message, column = named, constraint = broken,
            detail = coalesce(nullif(details, ''), format('It was said of the job %s. Nothing was changed.', coalesce(quote_literal(name), 'null'))),
            hint = coalesce(nullif(advice, ''), (
                select format('%s: %s', a.attname, col_description(a.attrelid, a.attnum)) from pg_attribute a
                 where a.attrelid = 'pgcron.jobs'::regclass and a.attname = named and a.attnum > 0), '\d+ pgcron.jobs says what is right.');
end $$;
revoke all on function pgcron.schedule(text, text, text, text, text, jsonb, jsonb) from public;
comment on function pgcron.schedule(text, text, text, text, text, jsonb, jsonb) is
    'Makes the job called name, or changes the one that there is: registering it twice changes it, never doubles it, and the same again writes nothing. Returns its id. options: any other column of pgcron.jobs, such as {"timeout": "2 hours", "max_attempts": 3}; what is not named stays as it is, or as by default. args null: as they are. Refused at once is what SQL can see: an unknown zone or kind, an empty command, a schedule without five or six fields. What a schedule means is read by a worker, within a second: one that cannot be read becomes pgcron.jobs.problem. Example: select pgcron.schedule(''clean-up'', ''0 3 * * *'', ''Europe/Berlin'', ''sql'', ''delete from sessions where expires_at < now()'')';

create function pgcron.unschedule(name text, missing_ok boolean default false) returns boolean
    language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    delete from pgcron.jobs j where j.name = unschedule.name;
    if not found and not coalesce(missing_ok, false) then
        perform pgcron.job_id(unschedule.name);
    end if;
    return found;
end $$;
revoke all on function pgcron.unschedule(text, boolean) from public;
comment on function pgcron.unschedule(text, boolean) is
    'Removes a job. Its queued runs are cancelled, a running one goes on, its history stays. An error where there is none; with missing_ok it returns false then. Example: select pgcron.unschedule(''clean-up'')';

create function pgcron.pause(name text, until timestamptz default null) returns void
    language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not isfinite(until) or until <= now() then
        raise exception 'until: % is not an instant to come', quote_literal(until) using errcode = 'invalid_parameter_value',
            detail = 'A job is paused until an instant, or until somebody resumes it. Nothing was changed.',
            hint = 'Such as now() + interval ''2 hours''; null: until pgcron.resume(name).';
    end if;
    -- A trigger keeps the beginning of a pause that is changed before its end.
    update pgcron.jobs j
       set enabled = j.enabled and pause.until is not null, paused_until = coalesce(pause.until, j.paused_until)
     where j.id = pgcron.job_id(pause.name);
end $$;
revoke all on function pgcron.pause(text, timestamptz) from public;
comment on function pgcron.pause(text, timestamptz) is
    'Starts nothing more of a job on schedule: until an instant, or, with null, until pgcron.resume(name). Its queued runs are cancelled, a running one goes on. Example: select pgcron.pause(''backup'', now() + interval ''2 hours'')';

create function pgcron.resume(name text) returns void
    language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    -- One whose pause has ended by itself goes on as it is.
    update pgcron.jobs j
       set enabled = true,
           paused_until = case when j.paused_until > now() then null else j.paused_until end,
           anchored_at = case when not j.enabled or j.paused_until > now() then clock_timestamp() else j.anchored_at end
     where j.id = pgcron.job_id(resume.name);
end $$;
revoke all on function pgcron.resume(text) from public;
comment on function pgcron.resume(text) is
    'Lets a job that was paused or disabled go on, from now: what fell due meanwhile is not made up for (pgcron-runner job resume --catch-up does). Example: select pgcron.resume(''backup'')';

create function pgcron.mute(name text, until timestamptz) returns void
    language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not isfinite(until) then
        raise exception 'until: % is not an instant', quote_literal(until) using errcode = 'invalid_parameter_value',
            detail = 'A mute that never ends is forgotten. Nothing was changed.',
            hint = 'Such as now() + interval ''2 hours''; null: alerts again.';
    end if;
    update pgcron.jobs j set muted_until = mute.until where j.id = pgcron.job_id(mute.name);
end $$;
revoke all on function pgcron.mute(text, timestamptz) from public;
comment on function pgcron.mute(text, timestamptz) is
    'No alert about a job before an instant; null: alerts again. It runs as ever, and what still fails afterwards is told then. Example: select pgcron.mute(''backup'', now() + interval ''2 hours'')';

-- ------------------------------------------------------------------------------------------------- runs

create function pgcron.run_job(name text, args jsonb default null, after interval default '0',
                               out run_id bigint, out status text, out reason text)
    language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
begin
    if after is null or not isfinite(after) or after < '0' or after > '10 years' then
        raise exception 'after: % is not a duration of up to ten years', coalesce(quote_literal(after), 'null')
            using errcode = 'invalid_parameter_value', detail = 'Nothing was queued.', hint = 'Such as interval ''10 minutes''.';
    end if;
    if jsonb_typeof(args) <> 'object' then
        raise exception 'args: % is not a JSON object', left(args::text, 100)
            using errcode = 'invalid_parameter_value', detail = 'Nothing was queued.', hint = 'Such as {"day": "2027-01-31"}; null: the job''s own.';
    end if;
    select e.run_id, e.status, e.reason into run_id, status, reason
      from pgcron.enqueue_run(pgcron.job_id(run_job.name), 'manual', clock_timestamp() + after, args => args) e;
end $$;
revoke all on function pgcron.run_job(text, jsonb, interval) from public;
comment on function pgcron.run_job(text, jsonb, interval) is
    'Runs a job now, or after a while, beside its schedule and also while it is paused; args null: its own. One row: the run; its status is queued, or skipped where the overlap rule of the job forbids it, for the reason. It commits with your transaction. Whoever calls it needs EXECUTE on pgcron.enqueue_run and pgcron.job_id too. Example: select * from pgcron.run_job(''report'', ''{"month": "2027-01"}'')';

create function pgcron.cancel_run(run_id bigint, reason text default null) returns text
    language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    was text;
begin
    select r.status into was from pgcron.runs r where r.id = cancel_run.run_id for update;
    if not found then
        raise exception 'run_id: there is no run %', coalesce(run_id::text, 'null') using errcode = 'no_data_found',
            detail = 'Finished runs are removed after keep_for.', hint = 'select run_id, status from pgcron.run_history where status in (''queued'', ''running'') lists those that can be cancelled.';
    end if;
    update pgcron.runs r
       set status = 'cancelled', finished_at = clock_timestamp(), reason = coalesce(cancel_run.reason, 'cancelled by ' || session_user)
     where r.id = cancel_run.run_id and r.status = 'queued';
    update pgcron.runs r set cancel_requested_at = coalesce(r.cancel_requested_at, clock_timestamp())
     where r.id = cancel_run.run_id and r.status = 'running';
    return was;
end $$;
revoke all on function pgcron.cancel_run(bigint, text) from public;
comment on function pgcron.cancel_run(bigint, text) is
    'Cancels a run: a queued one at once, a running one is stopped by its worker within a second; one that has ended stays as it is. Returns the status that it had. Example: select pgcron.cancel_run(4711)';

-- ------------------------------------------------------------------------------------------------ views

create view pgcron.job_status as
select j.id as job_id, j.name, j.kind, j.queue, j.tags, j.schedule, j.timezone, j.enabled, j.paused_until, j.problem,
       case when j.problem is not null then 'problem' when not j.enabled then 'disabled' when j.paused_until > now() then 'paused'
            when incident.failures > 0 then 'failing' when last.id is null then 'new' else 'ok' end as state,
       last.id as last_run_id, last.status as last_status, last.scheduled_for as last_scheduled_for, last.started_at as last_started_at,
       last.finished_at as last_finished_at, coalesce(last.error, last.reason) as last_error,
       case when j.enabled and j.planned then j.next_run_at end as next_run_at,
       live.running, live.queued, recent.tried as recent_runs, recent.succeeded::float8 / nullif(recent.tried, 0) as success_rate,
       recent.p50 as p50_duration, recent.p95 as p95_duration, coalesce(incident.failures, 0) as failures_in_row
  from pgcron.jobs j
  left join lateral (
        select r.id, r.status, r.scheduled_for, r.started_at, r.finished_at, r.error, r.reason
          from pgcron.runs r
         where r.job_id = j.id and r.status <> 'queued'
         order by r.scheduled_for desc, r.backfill desc, r.attempt desc limit 1) last on true
  cross join lateral (
        select count(*) filter (where r.status = 'running')::integer as running, count(*) filter (where r.status = 'queued')::integer as queued
          from pgcron.runs r where r.job_id = j.id and r.status in ('queued', 'running')) live
  cross join lateral (
        select count(*) filter (where r.status in ('succeeded', 'failed', 'timed_out', 'lost'))::integer as tried,
               count(*) filter (where r.status = 'succeeded')::integer as succeeded,
               percentile_cont(0.5) within group (order by r.finished_at - r.started_at) filter (where r.status = 'succeeded') as p50,
               percentile_cont(0.95) within group (order by r.finished_at - r.started_at) filter (where r.status = 'succeeded') as p95
          from (select h.status, h.started_at, h.finished_at from pgcron.runs h
                 where h.job_id = j.id order by h.scheduled_for desc, h.backfill desc, h.attempt desc limit 100) r) recent
  left join pgcron.incidents incident on incident.job_id = j.id and incident.kind = 'failing' and incident.closed_at is null;
comment on view pgcron.job_status is 'One row for each job: how it is doing. Figures are over its last 100 runs. Example: select name, state, last_status, next_run_at from pgcron.job_status where state <> ''ok''';
comment on column pgcron.job_status.job_id is 'jobs.id.';
comment on column pgcron.job_status.name is 'jobs.name.';
comment on column pgcron.job_status.kind is 'jobs.kind.';
comment on column pgcron.job_status.queue is 'jobs.queue.';
comment on column pgcron.job_status.tags is 'jobs.tags.';
comment on column pgcron.job_status.schedule is 'jobs.schedule.';
comment on column pgcron.job_status.timezone is 'jobs.timezone.';
comment on column pgcron.job_status.enabled is 'jobs.enabled.';
comment on column pgcron.job_status.paused_until is 'jobs.paused_until.';
comment on column pgcron.job_status.problem is 'Why it cannot be scheduled. Null: it can.';
comment on column pgcron.job_status.state is 'In one word: problem, disabled, paused, failing (an incident is open), new (it has not run yet) or ok.';
comment on column pgcron.job_status.last_run_id is 'The run of its last nominal time, or the last attempt at it. Null: it has not run yet.';
comment on column pgcron.job_status.last_status is 'How that run ended, or running.';
comment on column pgcron.job_status.last_scheduled_for is 'Its nominal time.';
comment on column pgcron.job_status.last_started_at is 'When a worker claimed it.';
comment on column pgcron.job_status.last_finished_at is 'When it ended.';
comment on column pgcron.job_status.last_error is 'What went wrong, or the reason.';
comment on column pgcron.job_status.next_run_at is 'When it is due next. Null: disabled, never, or no worker has planned it yet.';
comment on column pgcron.job_status.running is 'How many of its runs are running.';
comment on column pgcron.job_status.queued is 'How many wait: to be due, for a worker, or for the pause before a retry to end.';
comment on column pgcron.job_status.recent_runs is 'Of its last 100 runs those that succeeded, failed, timed out or were lost. Skipped, missed and cancelled ones are not counted.';
comment on column pgcron.job_status.success_rate is 'Which part of recent_runs succeeded, 0 to 1. Null: there are none.';
comment on column pgcron.job_status.p50_duration is 'Half of the recent successful runs took no longer.';
comment on column pgcron.job_status.p95_duration is '95 of a hundred recent successful runs took no longer.';
comment on column pgcron.job_status.failures_in_row is 'Failures since the last success, counted over nominal times and not over attempts.';

create view pgcron.run_history as
select r.id as run_id, r.job_id, r.job_name, r.kind, r.queue, r.trigger, r.scheduled_for, r.attempt, r.status, r.reason, r.error,
       r.exit_code, r.run_at, r.started_at, r.finished_at, greatest(r.started_at - r.run_at, '0') as waited,
       coalesce(r.finished_at, case when r.status = 'running' then now() end) - r.started_at as duration,
       (select w.name from pgcron.workers w where w.id = r.worker_id) as worker, r.backfill, r.missed_count, r.missed_until, r.parent_run_id,
       r.progress, r.result, r.output
  from pgcron.runs r;
comment on view pgcron.run_history is 'Every attempt at every nominal time, also those that did not happen, in the words of people. Newest first: order by run_id desc. Example: select scheduled_for, status, duration, reason from pgcron.run_history where job_id = pgcron.job_id(''backup'') order by scheduled_for desc limit 20';
comment on column pgcron.run_history.run_id is 'runs.id: grows with time.';
comment on column pgcron.run_history.job_id is 'jobs.id; null once the job was removed. Look for it, not for the name: there is an index.';
comment on column pgcron.run_history.job_name is 'The job''s name at the time.';
comment on column pgcron.run_history.kind is 'The job''s kind at the time.';
comment on column pgcron.run_history.queue is 'The job''s queue at the time.';
comment on column pgcron.run_history.trigger is 'Why the run exists: schedule, manual, retry, chain or backfill.';
comment on column pgcron.run_history.scheduled_for is 'The nominal time.';
comment on column pgcron.run_history.attempt is '1 for the first attempt.';
comment on column pgcron.run_history.status is 'queued, running, or how it ended: see runs.status.';
comment on column pgcron.run_history.reason is 'Why, where the status alone does not say it.';
comment on column pgcron.run_history.error is 'What went wrong.';
comment on column pgcron.run_history.exit_code is 'Exit code of the command.';
comment on column pgcron.run_history.run_at is 'When it was to start: the nominal time plus jitter, or the end of a retry''s pause.';
comment on column pgcron.run_history.started_at is 'When a worker claimed it.';
comment on column pgcron.run_history.finished_at is 'When it ended. Null while queued or running.';
comment on column pgcron.run_history.waited is 'From run_at to its start.';
comment on column pgcron.run_history.duration is 'From its start to its end, or to now while it runs. Null: it never started.';
comment on column pgcron.run_history.worker is 'Name of the worker; null once that row is gone.';
comment on column pgcron.run_history.backfill is 'True: made by a backfill.';
comment on column pgcron.run_history.missed_count is 'With status missed: how many nominal times this row stands for.';
comment on column pgcron.run_history.missed_until is 'With status missed: the last of them.';
comment on column pgcron.run_history.parent_run_id is 'The run that this one follows.';
comment on column pgcron.run_history.progress is 'What the command said of its progress.';
comment on column pgcron.run_history.result is 'What it returned.';
comment on column pgcron.run_history.output is 'Head and tail of what it printed.';

-- A view lends its owner's eyes, before PostgreSQL 15 always: there whoever is under row security sees nothing through it.
do $$ declare view text; begin
    foreach view in array array['job_status', 'run_history'] loop
        if current_setting('server_version_num')::integer >= 150000 then
            execute format('alter view pgcron.%I set (security_invoker = true)', view);
        else
            execute format('create or replace view pgcron.%I as select seen.* from (%s) seen where not row_security_active(%L) and not row_security_active(%L)',
                           view, rtrim(pg_get_viewdef(format('pgcron.%I', view)::regclass), ';'), 'pgcron.jobs', 'pgcron.runs');
        end if;
    end loop;
end $$;
