-- compatible
-- Functions of the schema:   who calls them
--   enqueue_run              run now, and whatever else starts a run that no schedule names: the overlap rule in one place
--   followers                finish: which runs follow one that has ended (chains, and what it asked for itself)
--   check_chain              trigger of chains: no circle
--   keep_pause               trigger of jobs: a pause that is changed is still the same pause
--   progress, save_state,    the text of a SQL job, of itself
--   state, run_after

-- ------------------------------------------------------------------------------ a run that no schedule names

create function pgcron.enqueue_run(
    job_id integer, trigger text, run_at timestamptz, overlap text default null, args jsonb default null,
    state jsonb default null, parent_run_id bigint default null)
returns table (run_id bigint, status text, reason text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    job pgcron.jobs;
    rule text;
    running bigint;
    queued bigint;
    queued_count bigint;
    why_not text;
    nominal timestamptz := enqueue_run.run_at;
begin
    -- Two that ask at once are asked one after the other.
    select * into job from pgcron.jobs where id = enqueue_run.job_id for no key update;
    if not found then
        return;
    end if;
    rule := coalesce(enqueue_run.overlap, job.overlap);
    -- The run that asks has ended, or is about to: it is in nobody's way.
    select min(r.id) filter (where r.status = 'running'), min(r.id) filter (where r.status = 'queued'),
           count(*) filter (where r.status = 'queued')
      into running, queued, queued_count
      from pgcron.runs r
     where r.job_id = job.id and r.status in ('queued', 'running') and r.id is distinct from enqueue_run.parent_run_id;
    why_not := case
        when enqueue_run.trigger = 'chain' and not job.enabled then 'the job is disabled'
        when enqueue_run.trigger = 'chain' and job.paused_until > enqueue_run.run_at then 'the job is paused'
        when rule = 'skip' and running is not null then 'overlap: run ' || running || ' is still running'
        when rule in ('skip', 'queue_one', 'replace') and queued is not null then 'overlap: run ' || queued || ' is still queued'
        when enqueue_run.trigger = 'chain' and rule = 'queue_all' and queued_count >= job.catch_up_limit then
            'overlap: ' || queued_count || ' runs are queued already'
    end;
    if rule = 'replace' and why_not is null then
        update pgcron.runs r set cancel_requested_at = clock_timestamp()
         where r.job_id = job.id and r.status = 'running' and r.cancel_requested_at is null
           and r.id is distinct from enqueue_run.parent_run_id;
    end if;
    loop
        insert into pgcron.runs as r (job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at, args, state,
                                      parent_run_id, max_running, status, reason, finished_at)
        values (job.id, job.name, job.kind, job.queue, job.priority, enqueue_run.trigger, nominal, enqueue_run.run_at,
                enqueue_run.args, enqueue_run.state, enqueue_run.parent_run_id,
                case when job.overlap = 'allow' then job.max_running else 1 end,
                case when why_not is null then 'queued' else 'skipped' end, why_not,
                case when why_not is not null then clock_timestamp() end)
        on conflict (job_id, scheduled_for, backfill, attempt) do nothing
        returning r.id, r.status, r.reason into run_id, status, reason;
        exit when found;
        -- Another run of this job has the very same nominal time.
        nominal := nominal + interval '1 microsecond';
    end loop;
    return next;
end $$;
revoke all on function pgcron.enqueue_run(integer, text, timestamptz, text, jsonb, jsonb, bigint) from public;
comment on function pgcron.enqueue_run(integer, text, timestamptz, text, jsonb, jsonb, bigint) is
    'Queues a run that no schedule names (trigger manual or chain), or records it as skipped where the overlap rule, the job''s or the one given, says so. No row: there is no such job.';

-- ------------------------------------------------------------------------------------------ what follows a run

create function pgcron.followers(run_id bigint, status text, retried boolean, saved_state jsonb, next_runs jsonb)
returns table (job_id integer, job_name text, delay interval, args jsonb, state jsonb)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    run pgcron.runs;
    goes_on boolean := false;
begin
    select * into run from pgcron.runs r where r.id = followers.run_id;
    if followers.status = 'succeeded' and followers.next_runs is not null then
        return query
        select j.id, coalesce(n.asked ->> 'job', run.job_name), make_interval(secs => (n.asked ->> 'after')::float8),
               nullif(n.asked -> 'args', 'null'::jsonb),
               -- The next slice finds what this one has saved; another job has a state of its own.
               case when j.id = run.job_id then coalesce(followers.saved_state, run.state) end
          from jsonb_array_elements(followers.next_runs) with ordinality as n(asked, place)
          left join pgcron.jobs j on case when n.asked ->> 'job' is null then j.id = run.job_id else j.name = n.asked ->> 'job' end
         order by n.place;
        goes_on := exists (
            select from jsonb_array_elements(followers.next_runs) as n(asked)
             where n.asked ->> 'job' is null or n.asked ->> 'job' = run.job_name);
    end if;
    -- Chains wait for the last attempt and the last slice; a backfill is about one job alone.
    if run.job_id is null or run.backfill or followers.retried or goes_on then
        return;
    end if;
    return query
    select c.downstream_id, null::text, c.delay, null::jsonb, null::jsonb
      from pgcron.chains c
     where c.upstream_id = run.job_id
       and case when followers.status = 'succeeded' then c.on_status in ('succeeded', 'finished')
                when followers.status in ('failed', 'timed_out', 'lost', 'interrupted') then c.on_status in ('failed', 'finished')
                else false end;
end $$;
revoke all on function pgcron.followers(bigint, text, boolean, jsonb, jsonb) from public;
comment on function pgcron.followers(bigint, text, boolean, jsonb, jsonb) is
    'What follows a run that ends so: the jobs chained to its job, and the runs that it asked for itself. A job_id of null: it asked for a job that does not exist.';

comment on table pgcron.chains is 'Jobs that run after other jobs: each end of the upstream job starts the downstream job, whose overlap rule decides as always. Backfills start nothing; a job that works in slices has ended with the last of them.';
comment on column pgcron.chains.on_status is 'After which end: succeeded, failed (failed, timed out or lost, with no attempts left), or finished (either). A cancelled run starts nothing.';

create function pgcron.check_chain() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (
        with recursive after(id) as (
            select new.downstream_id
            union
            select c.downstream_id from pgcron.chains c join after a on c.upstream_id = a.id
        )
        select from after where id = new.upstream_id)
    then
        raise exception 'chains: % would come after itself', (select quote_literal(name) from pgcron.jobs where id = new.upstream_id)
            using errcode = 'check_violation', table = 'chains',
            hint = 'A chain may not be a circle. For a job that goes on after itself use the schedule @every 10m after finish.';
    end if;
    return new;
end $$;
revoke all on function pgcron.check_chain() from public;
comment on function pgcron.check_chain() is 'Trigger of pgcron.chains: refuses a circle.';
create trigger check_chain after insert or update on pgcron.chains for each row execute function pgcron.check_chain();

-- ------------------------------------------------------------------------------- steps, from the text of a SQL job

-- What a SQL job says of itself. All four keep to the caller's own session and rights (none is security definer), so
-- everybody may execute them who may use the schema: a role that a job becomes needs `grant usage on schema pgcron`.
-- The worker gives a session pgcron.run_id, job, scheduled_for, attempt, args (JSON), state (JSON, or empty), worker_id,
-- and pgcron.transaction: on, off; not set where no run of this database is on its way (psql, another database).

-- Not an update of the row: nobody would see it before the commit, and its lock would be in the way of a cancel. INFO
-- reaches the client at once, whatever client_min_messages says.
create function pgcron.progress(percent numeric, text text default null) returns void
    language plpgsql parallel restricted set search_path = pg_catalog, pg_temp as $$
declare
    bounded constant numeric := case when percent <> 'NaN' then trim_scale(round(least(greatest(percent, 0), 100), 1)) end;
begin
    raise info using errcode = 'PGC01',
        message = concat_ws(' ', bounded || '%', left(progress.text, 1000)),
        detail = json_strip_nulls(json_build_object('percent', bounded, 'text', left(progress.text, 1000)));
end $$;
comment on function pgcron.progress is 'In a SQL job: how far it is, 0 to 100, and a few words. Shown in runs.progress while the job runs; sent as INFO with the code PGC01. Never fails.';

create function pgcron.save_state(state jsonb) returns void
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    mode constant text := current_setting('pgcron.transaction', true);
begin
    if octet_length(state::text) > 1048576 then
        raise exception 'state: it has % bytes, more than 1048576', octet_length(state::text)
            using errcode = 'program_limit_exceeded', hint = 'Keep where the work stands, such as {"last_id": 4711}, and the data in a table.';
    end if;
    perform set_config('pgcron.state', coalesce(state::text, 'null'), mode is not distinct from 'on');
    if mode = 'off' then
        update pgcron.runs r set state = coalesce(save_state.state, 'null')
         where r.id = current_setting('pgcron.run_id')::bigint and r.worker_id = current_setting('pgcron.worker_id')::uuid
           and r.status = 'running';
        if not found then
            raise exception 'run % is no longer this worker''s: its state is not saved', current_setting('pgcron.run_id')
                using errcode = 'object_not_in_prerequisite_state', hint = 'It was closed meanwhile, and may be running elsewhere.';
        end if;
    end if;
end $$;
comment on function pgcron.save_state is 'In a SQL job: keeps a JSON value for the next attempt, or the next run that it asks for. It commits with the work; with "transaction": false with the transaction it is called in. Null forgets.';

create function pgcron.state() returns jsonb
    language sql stable parallel restricted set search_path = pg_catalog, pg_temp as $$
    select nullif(nullif(current_setting('pgcron.state', true), '')::jsonb, 'null')
$$;
comment on function pgcron.state() is 'In a SQL job: what this run has saved, else what the attempt or slice before it has. Null: nothing.';

create function pgcron.run_after(delay interval default '0', job text default null, args jsonb default null) returns void
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    asked constant jsonb := coalesce(nullif(current_setting('pgcron.next_runs', true), ''), '[]')::jsonb;
begin
    if delay is null or not isfinite(delay) or delay < '0' or delay > '10 years' then
        raise exception 'delay: % is not a duration of up to ten years', coalesce(quote_literal(delay), 'null')
            using errcode = 'invalid_parameter_value', hint = 'Such as pgcron.run_after(''10 seconds'').';
    end if;
    if jsonb_typeof(args) <> 'object' then
        raise exception 'args: % is not a JSON object', left(args::text, 100)
            using errcode = 'invalid_parameter_value', hint = 'Such as {"day": "2027-01-31"}; null: the job''s own.';
    end if;
    if job is not null and not exists (select from pgcron.jobs j where j.name = job) then
        raise exception 'job: there is no job %', quote_literal(job)
            using errcode = 'foreign_key_violation', hint = 'select name from pgcron.jobs lists them; null: the job that is running.';
    end if;
    if jsonb_array_length(asked) >= 1000 then
        raise exception 'one run cannot ask for more than 1000 others'
            using errcode = 'program_limit_exceeded', hint = 'Ask for one that asks for the next.';
    end if;
    perform set_config('pgcron.next_runs',
        (asked || jsonb_build_object('job', job, 'after', extract(epoch from delay), 'args', args))::text,
        current_setting('pgcron.transaction', true) is not distinct from 'on');
end $$;
comment on function pgcron.run_after is 'In a SQL job: once this run has succeeded, starts a run of the job called so (null: of this job, which finds the saved state) after a delay, with these args (null: those of the job).';

-- --------------------------------------------------------------------------------------------- pauses

-- Its name sorts before check_job, whose anchor it gives: that trigger keeps one that has been moved.
create function pgcron.keep_pause() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    -- A microsecond: an anchor that is moved on purpose is kept by check_job.
    new.anchored_at := old.anchored_at + interval '1 microsecond';
    return new;
end $$;
revoke all on function pgcron.keep_pause() from public;
comment on function pgcron.keep_pause() is 'Trigger of pgcron.jobs: a pause that is changed before it has ended is still the same pause, so that job resume --catch-up makes up for all of it.';
create trigger a_pause_goes_on before update of enabled, paused_until on pgcron.jobs for each row
    when ((not old.enabled or old.paused_until > clock_timestamp()) and (not new.enabled or new.paused_until > clock_timestamp())
          and (old.enabled, old.paused_until) is distinct from (new.enabled, new.paused_until)
          and (old.name, old.schedule, old.timezone, old.dst_gap, old.dst_repeat, old.starts_at, old.ends_at, old.anchored_at)
              is not distinct from
              (new.name, new.schedule, new.timezone, new.dst_gap, new.dst_repeat, new.starts_at, new.ends_at, new.anchored_at))
    execute function pgcron.keep_pause();
