-- compatible
-- Tables (schema pgcron):            who changes a row, and how
--   jobs        what to run and when    people (any SQL, CLI, files); workers move next_run_at and set problem
--   runs        one attempt at one      fire, claim, finish, reap, cancel; nobody else changes a status
--               occurrence
--   workers     one process             the worker itself; reap ends it when its lease has ended
--   queues      limits of a queue       people
--   settings    one row                 people
--   chains, channels, routes, incidents, alerts: what follows a run
-- The protocol between these (states, statements, locks) is written down in sql/README.md.

do $$ begin
    -- A role that was given the schema need not be allowed to create one.
    if to_regnamespace('pgcron') is null then create schema pgcron; end if;
end $$;
comment on schema pgcron is 'pgcron-runner: jobs, their runs, and the workers that run them. Every object carries a comment: \dt+ and \d+ are the manual.';

create table pgcron.schema_migrations (
    version    integer primary key,
    name       text not null,
    breaking   boolean not null,
    applied_at timestamptz not null default clock_timestamp(),
    applied_by text not null default current_user
);
comment on table pgcron.schema_migrations is 'Which migrations this database has. Written by pgcron-runner migrate.';
comment on column pgcron.schema_migrations.version is 'Number of the file.';
comment on column pgcron.schema_migrations.name is 'Name of the file.';
comment on column pgcron.schema_migrations.breaking is 'True: a program that does not know it refuses to work on this schema.';
comment on column pgcron.schema_migrations.applied_at is 'When it was applied.';
comment on column pgcron.schema_migrations.applied_by is 'By which role.';

-- ---------------------------------------------------------------------------------------------- settings

create table pgcron.settings (
    only_row   boolean primary key default true check (only_row),
    paused     boolean not null default false,
    keep_for   interval not null default '30 days' check (isfinite(keep_for) and keep_for > '0'),
    updated_at timestamptz not null default now()
);
insert into pgcron.settings default values;
comment on table pgcron.settings is 'One row: what holds for the whole installation.';
comment on column pgcron.settings.only_row is 'Always true: there is just one row.';
comment on column pgcron.settings.paused is 'True stops every worker from starting anything new. What falls due meanwhile follows each job''s catch_up.';
comment on column pgcron.settings.keep_for is 'How long finished runs are kept where the job does not say keep_for itself.';
comment on column pgcron.settings.updated_at is 'When somebody last changed this row.';

-- ------------------------------------------------------------------------------------------------ queues

create table pgcron.queues (
    name        text primary key check (name ~ '^[A-Za-z0-9_.:-]{1,63}$'),
    max_running integer check (max_running > 0),
    paused      boolean not null default false
);
insert into pgcron.queues (name) values ('default');
comment on table pgcron.queues is 'Limits of a queue. A queue that is not listed here has none.';
comment on column pgcron.queues.name is 'The name that jobs.queue and worker --queues use.';
comment on column pgcron.queues.max_running is 'At most so many runs of this queue at a time, over all workers. Null: no limit.';
comment on column pgcron.queues.paused is 'True: nothing of this queue is started. Its runs wait.';

-- -------------------------------------------------------------------------------------------------- jobs

create table pgcron.jobs (
    id               integer generated always as identity primary key,
    name             text not null unique,
    kind             text not null check (kind in ('shell', 'sql', 'http', 'python')),
    command          text not null,
    args             jsonb not null default '{}' check (jsonb_typeof(args) = 'object'),
    schedule         text not null,
    timezone         text not null,
    enabled          boolean not null default true,
    paused_until     timestamptz check (isfinite(paused_until)),
    queue            text not null default 'default' check (queue ~ '^[A-Za-z0-9_.:-]{1,63}$'),
    priority         smallint not null default 0,
    starts_at        timestamptz check (isfinite(starts_at)),
    ends_at          timestamptz check (isfinite(ends_at)),
    exclude          text[] not null default '{}',
    jitter           interval not null default '0' check (isfinite(jitter) and jitter >= '0' and jitter <= '1 day'),
    timeout          interval not null default '1 hour' check (isfinite(timeout) and timeout > '0' and timeout <= '1 year'),
    kill_grace       interval not null default '10 seconds' check (isfinite(kill_grace) and kill_grace >= '0' and kill_grace <= '1 hour'),
    overlap          text not null default 'skip' check (overlap in ('skip', 'queue_one', 'queue_all', 'replace', 'allow')),
    max_running      integer check (max_running > 0),
    catch_up         text not null default 'latest' check (catch_up in ('skip', 'latest', 'all')),
    catch_up_window  interval check (isfinite(catch_up_window) and catch_up_window > '0'),
    catch_up_limit   integer not null default 100 check (catch_up_limit between 1 and 10000),
    max_attempts     integer not null default 1 check (max_attempts between 1 and 100000),
    retry_delay      interval not null default '30 seconds' check (isfinite(retry_delay) and retry_delay >= '0' and retry_delay <= '1 year'),
    retry_backoff    double precision not null default 2 check (retry_backoff between 1 and 100),
    retry_max_delay  interval not null default '1 hour' check (isfinite(retry_max_delay) and retry_max_delay >= '0' and retry_max_delay <= '1 year'),
    memory_limit_mb  integer check (memory_limit_mb > 0),
    output_limit_kb  integer not null default 64 check (output_limit_kb between 1 and 10240),
    env              jsonb not null default '{}' check (jsonb_typeof(env) = 'object'),
    env_from         text[] not null default '{}',
    working_dir      text,
    late_after       interval check (isfinite(late_after) and late_after > '0'),
    long_after       interval check (isfinite(long_after) and long_after > '0'),
    history          text not null default 'all' check (history in ('all', 'failures')),
    keep_for         interval check (isfinite(keep_for) and keep_for > '0'),
    muted_until      timestamptz check (isfinite(muted_until)),
    tags             text[] not null default '{}',
    owner            text not null default current_user,
    source           text not null default 'sql',
    dst_gap          text not null default 'run_after' check (dst_gap in ('run_after', 'skip')),
    dst_repeat       text not null default 'first' check (dst_repeat in ('first', 'last', 'both')),
    planned          boolean not null default false,
    anchored_at      timestamptz not null default clock_timestamp(),
    fired_until      timestamptz,
    fired_local      text,
    next_run_at      timestamptz,
    zone_data        text,
    problem          text,
    created_at       timestamptz not null default now(),
    updated_at       timestamptz not null default now(),
    constraint max_running_needs_allow check (max_running is null or overlap = 'allow'),
    constraint ends_after_start check (ends_at > starts_at)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- Leads with the due time: what lies in the future costs the search nothing.
create index jobs_with_a_deadline on pgcron.jobs (id) where catch_up_window is not null or catch_up = 'skip';
create index jobs_stopped on pgcron.jobs (id) where not enabled or paused_until is not null;
create index jobs_due on pgcron.jobs (next_run_at, id) where enabled and next_run_at is not null;

comment on table pgcron.jobs is 'What to run and when. Five columns are enough: name, schedule, timezone, kind, command. Rows may be inserted, edited and deleted by hand at any time.';
comment on column pgcron.jobs.id is 'Given by the database; never used again after a delete.';
comment on column pgcron.jobs.name is 'Unique name, 1 to 100 characters. Commands, logs and alerts use it.';
comment on column pgcron.jobs.kind is 'shell (a line for /bin/sh), sql (statements, exactly once), http (a request) or python (package.module:function).';
comment on column pgcron.jobs.command is 'What to run, in the form of its kind. Never interpolated: what stands here is what runs.';
comment on column pgcron.jobs.args is 'Further settings of the kind, as a JSON object: keywords for python, {"transaction": false} for sql, {"argv": [...]} for shell.';
comment on column pgcron.jobs.schedule is 'When: five cron fields (six with seconds first), @hourly to @yearly, @every 90s, @at 2027-01-31T09:00, @manual. Several lines are a union.';
comment on column pgcron.jobs.timezone is 'IANA name of the zone that the schedule is read in, such as Europe/Berlin or UTC. There is no default.';
comment on column pgcron.jobs.enabled is 'False: nothing is started on schedule, and queued runs are cancelled. Turning it on again starts from then, never from the past.';
comment on column pgcron.jobs.paused_until is 'Nothing is started on schedule before this instant. Null: not paused.';
comment on column pgcron.jobs.queue is 'Which workers may run it: those started with this name in --queues, or without --queues.';
comment on column pgcron.jobs.priority is 'Higher goes first among the due runs of a queue.';
comment on column pgcron.jobs.starts_at is 'No occurrence before this instant.';
comment on column pgcron.jobs.ends_at is 'No occurrence after this instant.';
comment on column pgcron.jobs.exclude is 'Names of calendars: an occurrence on one of their days is skipped, and its row names the calendar.';
comment on column pgcron.jobs.jitter is 'Starts are spread over this much time after the nominal time; the delay of one job is always the same.';
comment on column pgcron.jobs.timeout is 'How long one attempt may take before it is stopped as timed_out.';
comment on column pgcron.jobs.kill_grace is 'How long a stopped command may take to end after TERM before it is killed.';
comment on column pgcron.jobs.overlap is 'When an occurrence falls due while a run of this job is queued or running: skip it, queue_one, queue_all, replace (stop the running one), or allow.';
comment on column pgcron.jobs.max_running is 'With overlap allow: at most so many runs at a time over all workers. Null: no limit.';
comment on column pgcron.jobs.catch_up is 'Occurrences that nobody was there to start: skip them, run the latest, or run all (up to catch_up_limit). The rest is one row with status missed.';
comment on column pgcron.jobs.catch_up_window is 'An occurrence older than this is not caught up. Null: no bound (60 seconds with catch_up skip).';
comment on column pgcron.jobs.catch_up_limit is 'With catch_up all: at most so many runs are made up at a time.';
comment on column pgcron.jobs.max_attempts is 'How many attempts an occurrence has, the first one included. 1: no retry.';
comment on column pgcron.jobs.retry_delay is 'Pause before the second attempt.';
comment on column pgcron.jobs.retry_backoff is 'Each further pause is this many times the one before.';
comment on column pgcron.jobs.retry_max_delay is 'No pause between attempts is longer than this.';
comment on column pgcron.jobs.memory_limit_mb is 'The whole process tree of a run may use so much memory. Null: no limit.';
comment on column pgcron.jobs.output_limit_kb is 'How much of the output is kept: its head and its tail. The rest is counted.';
comment on column pgcron.jobs.env is 'Environment variables of the command, as a JSON object of strings.';
comment on column pgcron.jobs.env_from is 'Names of the worker''s own environment variables that the command gets as well. Keeps secrets out of this table.';
comment on column pgcron.jobs.working_dir is 'Folder that the command starts in. Null: the worker''s.';
comment on column pgcron.jobs.late_after is 'An occurrence that has not started after this time is an incident.';
comment on column pgcron.jobs.long_after is 'A run that takes longer than this is an incident; it goes on.';
comment on column pgcron.jobs.history is 'all: every run is kept for keep_for. failures: runs that succeeded or were skipped are removed after an hour, but for the last one.';
comment on column pgcron.jobs.keep_for is 'How long finished runs are kept. Null: settings.keep_for. The last run of a job is always kept.';
comment on column pgcron.jobs.muted_until is 'No alert about this job before this instant.';
comment on column pgcron.jobs.tags is 'Words for searching and for alert routes.';
comment on column pgcron.jobs.owner is 'The role that made the job.';
comment on column pgcron.jobs.source is 'Where the definition comes from: sql, cli, or file:NAME.';
comment on column pgcron.jobs.dst_gap is 'A fixed time that the clock jumps over: run_after (at the first instant after the gap) or skip.';
comment on column pgcron.jobs.dst_repeat is 'A fixed time that the clock shows twice: run on the first pass, the last, or both.';
comment on column pgcron.jobs.planned is 'Set by workers: next_run_at was computed from this schedule. False after an insert or edit, for less than a second.';
comment on column pgcron.jobs.anchored_at is 'The schedule counts from here: when the job was made, edited, enabled or resumed. Nothing at or before it ever fires.';
comment on column pgcron.jobs.fired_until is 'Set by workers: up to here every occurrence is accounted for.';
comment on column pgcron.jobs.fired_local is 'Set by workers: local nominal time (ISO, without zone) of the last occurrence, so that new zone data cannot fire it twice.';
comment on column pgcron.jobs.zone_data is 'Set by workers: release of the zone data that next_run_at was computed with. Newer data computes it anew.';
comment on column pgcron.jobs.next_run_at is 'Set by workers: the next nominal time. Null: never again, manual, disabled, or it has a problem.';
comment on column pgcron.jobs.problem is 'Set by workers: why this job cannot be scheduled. Any edit of the schedule or zone clears it.';
comment on column pgcron.jobs.created_at is 'When the row was made.';
comment on column pgcron.jobs.updated_at is 'When its definition last changed.';

-- -------------------------------------------------------------------------------------------- calendars

create table pgcron.calendars (
    name        text primary key check (name ~ '^[A-Za-z0-9_.:-]{1,63}$'),
    description text
);
create table pgcron.calendar_days (
    calendar  text not null references pgcron.calendars on update cascade on delete cascade,
    first_day date not null check (isfinite(first_day)),
    last_day  date not null check (isfinite(last_day)),
    label     text,
    primary key (calendar, first_day, last_day),
    constraint last_day_not_before_first check (last_day >= first_day)
);
comment on table pgcron.calendars is 'Named sets of days on which jobs that say so are skipped: holidays, freezes.';
comment on column pgcron.calendars.name is 'What jobs.exclude names.';
comment on column pgcron.calendars.description is 'What it is for.';
comment on table pgcron.calendar_days is 'The days of a calendar, as ranges with both ends included, in each job''s own zone.';
comment on column pgcron.calendar_days.calendar is 'The calendar.';
comment on column pgcron.calendar_days.first_day is 'First day.';
comment on column pgcron.calendar_days.last_day is 'Last day; the same for a single one.';
comment on column pgcron.calendar_days.label is 'What the days are, such as New Year. The skipped run says it.';

-- ------------------------------------------------------------------------------------------------- runs

create table pgcron.runs (
    id                  bigint generated always as identity primary key,
    job_id              integer references pgcron.jobs on delete set null,
    job_name            text not null,
    kind                text not null,
    queue               text not null default 'default',
    priority            smallint not null default 0,
    trigger             text not null check (trigger in ('schedule', 'manual', 'retry', 'chain', 'backfill')),
    scheduled_for       timestamptz not null,
    run_at              timestamptz not null,
    attempt             integer not null default 1 check (attempt > 0),
    backfill            boolean not null default false,
    status              text not null default 'queued' check (status in
                        ('queued', 'running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'interrupted', 'lost', 'skipped', 'missed')),
    reason              text,
    max_running         integer check (max_running > 0),
    lane                integer,
    worker_id           uuid,
    created_at          timestamptz not null default now(),
    started_at          timestamptz,
    finished_at         timestamptz,
    exit_code           integer,
    error               text,
    progress            jsonb,
    state               jsonb,
    result              jsonb,
    output              text,
    output_bytes        bigint,
    output_truncated    boolean,
    missed_count        bigint check (missed_count > 0),
    missed_until        timestamptz,
    parent_run_id       bigint,
    args                jsonb check (jsonb_typeof(args) = 'object'),
    cancel_requested_at timestamptz,
    constraint final_has_an_end check ((status in ('queued', 'running')) = (finished_at is null)),
    constraint running_has_a_worker check (status <> 'running' or (worker_id is not null and started_at is not null)),
    constraint queued_has_a_job check (status <> 'queued' or job_id is not null),
    constraint queued_has_no_worker check (status <> 'queued' or (worker_id is null and started_at is null)),
    constraint running_has_a_lane check (status <> 'running' or max_running is null or (lane is not null and lane between 1 and max_running)),
    constraint missed_has_a_range check ((status = 'missed') = (missed_count is not null) and (missed_count is null) = (missed_until is null))
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);

-- An occurrence happens once, may be filled in once more by a backfill, and each attempt at it is one row. Serves a job's
-- history too.
create unique index runs_occurrence on pgcron.runs (job_id, scheduled_for, backfill, attempt);
-- Never two at once: an exclusive job has lane 1 only, one that allows overlap has lanes 1 to max_running.
create unique index runs_running on pgcron.runs (job_id, lane) include (max_running) where status = 'running';
create index runs_running_by_worker on pgcron.runs (worker_id) where status = 'running';
create index runs_live on pgcron.runs (job_id, status) where status in ('queued', 'running');
-- What people and monitors look for first; a healthy installation has few of them.
create index runs_failed on pgcron.runs (finished_at) where status in ('failed', 'timed_out', 'lost');
-- Claims ask queue by queue and priority by priority, so that within one the due time leads.
create index runs_queued on pgcron.runs (queue, priority, run_at, id) where status = 'queued';

comment on table pgcron.runs is 'Every attempt at every occurrence, also those that did not happen, with the reason. Written by workers; outlives its job.';
comment on column pgcron.runs.id is 'Grows with time. Given to the command as PGCRON_RUN_ID: a fencing token, since a retry is a new row.';
comment on column pgcron.runs.job_id is 'The job; null once it was deleted.';
comment on column pgcron.runs.job_name is 'The job''s name when the run was made.';
comment on column pgcron.runs.kind is 'The job''s kind when the run was made.';
comment on column pgcron.runs.queue is 'The job''s queue when the run was made.';
comment on column pgcron.runs.priority is 'The job''s priority when the run was made.';
comment on column pgcron.runs.trigger is 'Why the run exists: schedule, manual, retry, chain or backfill.';
comment on column pgcron.runs.scheduled_for is 'The nominal time. With status missed: the first of the missed ones.';
comment on column pgcron.runs.run_at is 'When it may start: the nominal time plus jitter, or the end of a retry''s pause.';
comment on column pgcron.runs.attempt is '1 for the first attempt; a retry is a new row with the next number.';
comment on column pgcron.runs.backfill is 'True: made by a backfill, and so are its retries. It stands beside what happened at the time.';
comment on column pgcron.runs.status is 'queued, running, or final: succeeded, failed, timed_out, cancelled, interrupted (by a stopping worker), lost (its worker vanished), skipped (overlap), missed (nobody was there, or too late).';
comment on column pgcron.runs.reason is 'Why it ended as it did, in words, where the status alone does not say it.';
comment on column pgcron.runs.max_running is 'How many runs of the job may be running while this one is: 1 unless the job allows overlap; null is no limit.';
comment on column pgcron.runs.lane is 'Which of the max_running places it holds while it runs. Unique per job among the running.';
comment on column pgcron.runs.worker_id is 'The worker that claimed it.';
comment on column pgcron.runs.created_at is 'When the row was made.';
comment on column pgcron.runs.started_at is 'When a worker claimed it, by the database''s clock.';
comment on column pgcron.runs.finished_at is 'When its end was recorded, by the database''s clock. Null while queued or running.';
comment on column pgcron.runs.exit_code is 'Exit code of the command; 128 + n when signal n ended it.';
comment on column pgcron.runs.error is 'What went wrong, as the command, Postgres or the worker put it.';
comment on column pgcron.runs.progress is 'What the running command said of its progress.';
comment on column pgcron.runs.state is 'What the command saved for its next attempt.';
comment on column pgcron.runs.result is 'What the command returned.';
comment on column pgcron.runs.output is 'Head and tail of what the command printed.';
comment on column pgcron.runs.output_bytes is 'How many bytes it printed in all.';
comment on column pgcron.runs.output_truncated is 'True: the middle of the output was left out.';
comment on column pgcron.runs.missed_count is 'With status missed: how many occurrences this row stands for.';
comment on column pgcron.runs.missed_until is 'With status missed: the last of them.';
comment on column pgcron.runs.parent_run_id is 'The run that this one follows: the failed attempt, or the upstream run.';
comment on column pgcron.runs.args is 'Arguments of this run alone; null: the job''s.';
comment on column pgcron.runs.cancel_requested_at is 'Somebody asked to stop it; its worker does so within a second.';

-- ---------------------------------------------------------------------------------------------- workers

create table pgcron.workers (
    id           uuid primary key,
    name         text not null,
    host         text not null,
    pid          integer not null,
    version      text not null,
    zone_data    text not null,
    queues       text[],
    kinds        text[] not null,
    slots        integer not null check (slots > 0),
    lease        interval not null check (lease > '0'),
    beat         bigint not null default 0,
    started_at   timestamptz not null default clock_timestamp(),
    heartbeat_at timestamptz not null default clock_timestamp(),
    stopping     boolean not null default false,
    ended_at     timestamptz,
    end_reason   text
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_analyze_threshold = 200);

comment on table pgcron.workers is 'One row per worker process. Ended ones are kept for a day.';
comment on column pgcron.workers.id is 'Drawn at random at each start. Its sessions carry it in application_name.';
comment on column pgcron.workers.name is 'What people call it: --name, or host and pid.';
comment on column pgcron.workers.host is 'Host name.';
comment on column pgcron.workers.pid is 'Process id on that host.';
comment on column pgcron.workers.version is 'Version of pgcron-runner.';
comment on column pgcron.workers.zone_data is 'Release of its time zone data.';
comment on column pgcron.workers.queues is 'Queues it serves. Null: all.';
comment on column pgcron.workers.kinds is 'Kinds of jobs it runs.';
comment on column pgcron.workers.slots is 'How many runs it takes at a time.';
comment on column pgcron.workers.lease is 'How long it may be believed alive after its last heartbeat.';
comment on column pgcron.workers.beat is 'Counts heartbeats. The others watch it change on their own clocks; no wall clock is compared.';
comment on column pgcron.workers.started_at is 'When it registered.';
comment on column pgcron.workers.heartbeat_at is 'Time of the last heartbeat, for people; nothing is decided by it.';
comment on column pgcron.workers.stopping is 'True: it finishes what it has and takes nothing new.';
comment on column pgcron.workers.ended_at is 'When it stopped, or was found dead.';
comment on column pgcron.workers.end_reason is 'stopped: in order. lost: its lease ended.';

-- --------------------------------------------------------------------------------- what follows a run

create table pgcron.chains (
    upstream_id   integer not null references pgcron.jobs on delete cascade,
    downstream_id integer not null references pgcron.jobs on delete cascade,
    on_status     text not null default 'succeeded' check (on_status in ('succeeded', 'failed', 'finished')),
    delay         interval not null default '0' check (isfinite(delay) and delay >= '0'),
    primary key (upstream_id, downstream_id),
    constraint no_loop_onto_itself check (upstream_id <> downstream_id)
);
create index chains_downstream on pgcron.chains (downstream_id);
comment on table pgcron.chains is 'Jobs that run after other jobs.';
comment on column pgcron.chains.upstream_id is 'The job whose end starts the other.';
comment on column pgcron.chains.downstream_id is 'The job that is started.';
comment on column pgcron.chains.on_status is 'After which end: succeeded, failed (no attempts left), or finished (either).';
comment on column pgcron.chains.delay is 'Pause in between.';

create table pgcron.channels (
    id           integer generated always as identity primary key,
    name         text not null unique check (name ~ '^[A-Za-z0-9_.:-]{1,63}$'),
    target       text not null check (target <> ''),
    timezone     text,
    quiet_from   time,
    quiet_until  time,
    digest_every interval check (isfinite(digest_every) and digest_every > '0'),
    template     text,
    enabled      boolean not null default true,
    muted_until  timestamptz check (isfinite(muted_until)),
    created_at   timestamptz not null default now(),
    constraint quiet_hours_have_a_zone check (num_nulls(quiet_from, quiet_until) <> 1 and (quiet_from is null or timezone is not null))
);
comment on table pgcron.channels is 'Where alerts go.';
comment on column pgcron.channels.id is 'Given by the database.';
comment on column pgcron.channels.name is 'Unique name.';
comment on column pgcron.channels.target is 'An Apprise URL, or a reference that the worker resolves: env:NAME or file:PATH.';
comment on column pgcron.channels.timezone is 'Zone of the quiet hours.';
comment on column pgcron.channels.quiet_from is 'Nothing is sent from this local time on.';
comment on column pgcron.channels.quiet_until is 'Until this local time.';
comment on column pgcron.channels.digest_every is 'One message per interval for all that happened. Null: one message each.';
comment on column pgcron.channels.template is 'Text of the message. Null: the built-in one.';
comment on column pgcron.channels.enabled is 'False: nothing is sent.';
comment on column pgcron.channels.muted_until is 'Nothing is sent before this instant.';
comment on column pgcron.channels.created_at is 'When the row was made.';

create table pgcron.routes (
    id           integer generated always as identity primary key,
    channel_id   integer not null references pgcron.channels on delete cascade,
    job_pattern  text not null default '*',
    tags         text[] not null default '{}',
    queue        text,
    events       text[] not null default '{failed,timed_out,lost,launch_failed,invalid,recovered}',
    min_failures integer not null default 1 check (min_failures > 0),
    repeat_every interval check (isfinite(repeat_every) and repeat_every > '0'),
    created_at   timestamptz not null default now()
);
create index routes_channel on pgcron.routes (channel_id);
comment on table pgcron.routes is 'Which events of which jobs go to which channel.';
comment on column pgcron.routes.id is 'Given by the database.';
comment on column pgcron.routes.channel_id is 'The channel.';
comment on column pgcron.routes.job_pattern is 'Job names, with * for any text.';
comment on column pgcron.routes.tags is 'Jobs that carry all of these tags.';
comment on column pgcron.routes.queue is 'Jobs of this queue. Null: any.';
comment on column pgcron.routes.events is 'failed, timed_out, lost, launch_failed, late, missed, long, invalid, recovered.';
comment on column pgcron.routes.min_failures is 'Only after so many failures in a row: a louder channel for what goes on.';
comment on column pgcron.routes.repeat_every is 'Say it again while the incident is open. Null: once.';
comment on column pgcron.routes.created_at is 'When the row was made.';

create table pgcron.incidents (
    id              bigint generated always as identity primary key,
    job_id          integer references pgcron.jobs on delete set null,
    job_name        text not null,
    event           text not null,
    opened_at       timestamptz not null default now(),
    closed_at       timestamptz,
    failures        integer not null default 1 check (failures > 0),
    first_run_id    bigint,
    last_run_id     bigint,
    acknowledged_at timestamptz,
    acknowledged_by text
);
create unique index incidents_open on pgcron.incidents (job_id) where closed_at is null;
create index incidents_job on pgcron.incidents (job_id, opened_at);
comment on table pgcron.incidents is 'A job that is failing, from its first failure without attempts left to its next success.';
comment on column pgcron.incidents.id is 'Given by the database.';
comment on column pgcron.incidents.job_id is 'The job; null once it was deleted.';
comment on column pgcron.incidents.job_name is 'Its name.';
comment on column pgcron.incidents.event is 'What opened it.';
comment on column pgcron.incidents.opened_at is 'When it began.';
comment on column pgcron.incidents.closed_at is 'When the job recovered. Null: still open.';
comment on column pgcron.incidents.failures is 'Failures in a row, counted over occurrences.';
comment on column pgcron.incidents.first_run_id is 'The run that opened it.';
comment on column pgcron.incidents.last_run_id is 'The last run that failed.';
comment on column pgcron.incidents.acknowledged_at is 'Somebody took it on.';
comment on column pgcron.incidents.acknowledged_by is 'Who.';

create table pgcron.alerts (
    id          bigint generated always as identity primary key,
    channel_id  integer not null references pgcron.channels on delete cascade,
    incident_id bigint references pgcron.incidents on delete set null,
    job_name    text not null,
    run_id      bigint,
    event       text not null,
    dedup_key   text not null,
    payload     jsonb not null default '{}',
    created_at  timestamptz not null default now(),
    send_at     timestamptz not null default now(),
    tries       integer not null default 0,
    sent_at     timestamptz,
    given_up_at timestamptz,
    error       text,
    unique (channel_id, dedup_key)
);
create index alerts_unsent on pgcron.alerts (send_at, id) where sent_at is null and given_up_at is null;
create index alerts_incident on pgcron.alerts (incident_id);
comment on table pgcron.alerts is 'The outbox: one message to one channel, written in the transaction that ends the run.';
comment on column pgcron.alerts.id is 'Given by the database.';
comment on column pgcron.alerts.channel_id is 'Where it goes.';
comment on column pgcron.alerts.incident_id is 'What it belongs to.';
comment on column pgcron.alerts.job_name is 'The job it speaks of.';
comment on column pgcron.alerts.run_id is 'The run it speaks of.';
comment on column pgcron.alerts.event is 'What happened.';
comment on column pgcron.alerts.dedup_key is 'The same thing is said once per channel.';
comment on column pgcron.alerts.payload is 'Facts for the message.';
comment on column pgcron.alerts.created_at is 'When the row was made.';
comment on column pgcron.alerts.send_at is 'Not before this instant.';
comment on column pgcron.alerts.tries is 'How often sending it was tried.';
comment on column pgcron.alerts.sent_at is 'When the channel took it.';
comment on column pgcron.alerts.given_up_at is 'When it was given up.';
comment on column pgcron.alerts.error is 'What the channel answered last.';

-- --------------------------------------------------------------------------------------------- triggers

-- Refuses what SQL can see to be wrong, in words; what only the schedule's own parser can see becomes jobs.problem.
-- A change of when anchors the schedule anew: an edit never fires the past.
create function pgcron.check_job() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    line text;
    fields text[];
    bad_key text;
begin
    if new.name is null or new.name <> btrim(new.name) or length(new.name) not between 1 and 100 or new.name ~ '[[:cntrl:]]' then
        raise exception 'name: % is not a job name', coalesce(quote_literal(new.name), 'null')
            using errcode = 'check_violation', column = 'name', hint = '1 to 100 characters without blanks at the ends, such as nightly-report.';
    end if;
    if new.kind not in ('shell', 'sql', 'http', 'python') then
        raise exception 'kind: % is not a kind of job', quote_literal(new.kind) using errcode = 'check_violation', column = 'kind',
            hint = 'shell, sql, http or python.';
    end if;
    if btrim(new.command, E' \t\n\r') = '' then
        raise exception 'command: it is empty' using errcode = 'check_violation', column = 'command',
            hint = 'Say what to run, such as: analyze, or: /usr/local/bin/backup.';
    end if;
    if new.timezone is null then
        raise exception 'timezone: a job must say its time zone' using errcode = 'not_null_violation', column = 'timezone',
            hint = 'An IANA name, such as Europe/Berlin or UTC.';
    end if;
    begin
        if new.timezone !~ '^([A-Za-z_]+(/[A-Za-z0-9_+-]+){1,2}|[A-Z][A-Za-z-]+)$' or new.timezone ~ '^(posix|right)/' then
            raise exception using errcode = 'invalid_parameter_value';
        end if;
        perform now() at time zone new.timezone;
    exception when invalid_parameter_value then
        raise exception 'timezone: % is not a known time zone', quote_literal(new.timezone)
            using errcode = 'invalid_parameter_value', column = 'timezone', hint = 'An IANA name, such as Europe/Berlin or UTC.';
    end;
    if btrim(coalesce(new.schedule, ''), E' \t\n\r') = '' then
        raise exception 'schedule: it is empty' using errcode = 'check_violation', column = 'schedule',
            hint = 'Five cron fields such as 0 3 * * *, or @daily, @every 15m, @at 2027-01-31T09:00, @manual.';
    end if;
    foreach line in array regexp_split_to_array(new.schedule, '\r?\n') loop
        line := btrim(line, E' \t');
        continue when line = '';
        if line like '@%' then
            if line !~* '^@(hourly|daily|midnight|weekly|monthly|yearly|annually|manual)$' and line !~* '^@(every|at)\s+\S' then
                raise exception 'schedule: % is not a known macro', quote_literal(line)
                    using errcode = 'check_violation', column = 'schedule',
                    hint = case when line ~* '^@reboot' then 'A scheduler shared by several hosts has no boot. Say a time, such as @daily.'
                        else 'Known are @hourly @daily @weekly @monthly @yearly @every 15m @at 2027-01-31T09:00 @manual.' end;
            end if;
        else
            fields := regexp_split_to_array(line, '[ \t]+');
            if cardinality(fields) not in (5, 6) then
                raise exception 'schedule: % has % fields', quote_literal(line), cardinality(fields)
                    using errcode = 'check_violation', column = 'schedule',
                    hint = 'Five: minute hour day month weekday, such as 0 3 * * *. Six: seconds first.';
            end if;
        end if;
    end loop;
    select named into bad_key from unnest(new.exclude) as named
     where not exists (select from pgcron.calendars c where c.name = named) limit 1;
    if found then
        raise exception 'exclude: there is no calendar %', coalesce(quote_literal(bad_key), 'null')
            using errcode = 'foreign_key_violation', column = 'exclude',
            hint = 'Add it first: insert into pgcron.calendars (name) values (''holidays'').';
    end if;
    select key into bad_key from jsonb_each(new.env) where jsonb_typeof(value) <> 'string' or key !~ '^[A-Za-z_][A-Za-z0-9_]*$' limit 1;
    if found then
        raise exception 'env: % is not a variable name with a string value', quote_literal(bad_key)
            using errcode = 'check_violation', column = 'env', hint = 'A JSON object of strings, such as {"LEVEL": "info"}.';
    end if;
    if new.owner is null then new.owner := session_user; end if;
    new.updated_at := now();

    if tg_op = 'INSERT' then
        new.created_at := now();
    elsif (new.schedule, new.timezone, new.enabled, new.dst_gap, new.dst_repeat) is not distinct from
          (old.schedule, old.timezone, old.enabled, old.dst_gap, old.dst_repeat)
      and (new.name, new.paused_until, new.starts_at, new.ends_at) is not distinct from
          (old.name, old.paused_until, old.starts_at, old.ends_at) then
        return new;
    elsif new.anchored_at is not distinct from old.anchored_at then
        new.anchored_at := clock_timestamp();
    end if;
    -- Due at once, so that a worker plans it; nothing at or before anchored_at fires.
    new.planned := false;
    new.problem := null;
    new.fired_local := null;
    new.next_run_at := case when new.enabled then new.anchored_at end;
    return new;
end $$;
revoke all on function pgcron.check_job() from public;
comment on function pgcron.check_job() is 'Trigger of pgcron.jobs: validates a row in words and re-anchors its schedule when it changed.';

-- Not for what workers write (next_run_at, planned, problem): those would pay for it at every fire.
create trigger check_job before insert or update of
    name, kind, command, args, schedule, timezone, enabled, paused_until, queue, priority, starts_at, ends_at, jitter, timeout,
    kill_grace, overlap, max_running, catch_up, catch_up_window, catch_up_limit, max_attempts, retry_delay, retry_backoff,
    retry_max_delay, memory_limit_mb, output_limit_kb, env, env_from, working_dir, late_after, long_after, history, keep_for,
    tags, owner, source, dst_gap, dst_repeat, exclude, anchored_at
    on pgcron.jobs for each row execute function pgcron.check_job();

create function pgcron.withdraw_queued_runs() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update pgcron.runs set status = 'cancelled', finished_at = clock_timestamp(),
        reason = case when tg_op = 'DELETE' then 'the job was removed' when not new.enabled then 'the job was disabled' else 'the job was paused' end
     where job_id = old.id and status = 'queued' and (tg_op = 'DELETE' or trigger in ('schedule', 'retry'));
    return coalesce(new, old);
end $$;
revoke all on function pgcron.withdraw_queued_runs() from public;
comment on function pgcron.withdraw_queued_runs() is 'Trigger of pgcron.jobs: a job that is removed, disabled or paused starts nothing more; a running run ends normally.';
create trigger withdraw_on_delete before delete on pgcron.jobs for each row execute function pgcron.withdraw_queued_runs();
create trigger withdraw_on_pause before update of enabled, paused_until on pgcron.jobs for each row
    when ((old.enabled and not new.enabled) or new.paused_until > coalesce(old.paused_until, '-infinity'))
    execute function pgcron.withdraw_queued_runs();

create function pgcron.notify_workers() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_notify('pgcron', tg_argv[0]);
    return null;
end $$;
revoke all on function pgcron.notify_workers() from public;
comment on function pgcron.notify_workers() is 'Trigger: wakes the workers that listen on channel pgcron. A hint only: they look by themselves as well.';

create trigger notify_jobs after insert or delete or update of name, schedule, timezone, enabled, paused_until, starts_at, ends_at, dst_gap, dst_repeat
    on pgcron.jobs for each statement execute function pgcron.notify_workers('jobs');
create trigger notify_settings after update on pgcron.settings for each statement execute function pgcron.notify_workers('jobs');
create trigger notify_queues after insert or delete or update on pgcron.queues for each statement execute function pgcron.notify_workers('runs');

create function pgcron.notify_queued_runs() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from added where added.status operator(pg_catalog.=) 'queued') then
        perform pg_notify('pgcron', 'runs');
    end if;
    return null;
end $$;
revoke all on function pgcron.notify_queued_runs() from public;
comment on function pgcron.notify_queued_runs() is 'Trigger of pgcron.runs: wakes the workers when something was queued.';
create trigger notify_runs after insert on pgcron.runs referencing new table as added for each statement execute function pgcron.notify_queued_runs();
-- For each row: Postgres fires one statement trigger a table and query, and the cancelling query updates runs twice.
create trigger notify_cancel after update of cancel_requested_at on pgcron.runs for each row
    when (new.cancel_requested_at is distinct from old.cancel_requested_at) execute function pgcron.notify_workers('cancel');

create function pgcron.touch_settings() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.updated_at := now();
    return new;
end $$;
revoke all on function pgcron.touch_settings() from public;
comment on function pgcron.touch_settings() is 'Trigger of pgcron.settings: dates a change.';
create trigger touch_settings before update on pgcron.settings for each row execute function pgcron.touch_settings();
