-- compatible
-- Who is told what: incidents are opened, counted and closed by triggers, in the transaction that ends, misses or reaps a run
-- (or finds that a job cannot be scheduled); the same triggers write the alerts, by the routes. The rest is the watch duty's:
-- late and long runs, repeats, escalations that were held back, and what a mute has kept quiet.
--   open_incident, close_incident     the two changes of state
--   tell                              one alert for each channel that is still to hear of an incident
--   alert_facts                       what a message can say
--   note_run, note_problem            triggers
-- The triggers are planned once a session, by indexes: the tables may have been empty then.

alter table pgcron.jobs
    add column pause_after integer check (pause_after > 0),
    add column paused_reason text,
    add column redact text[] not null default '{}',
    add column heartbeat_url text check (heartbeat_url ~ '^(https?://|env:|file:).+');
comment on column pgcron.jobs.pause_after is 'After so many failures in a row the job is disabled, within seconds, and paused_reason says why. Null: never.';
comment on column pgcron.jobs.paused_reason is 'Why the job was disabled by itself. Enabling it clears this.';
comment on column pgcron.jobs.redact is 'Regular expressions: what they match in output and errors is masked in alerts.';
comment on column pgcron.jobs.heartbeat_url is 'A monitor such as healthchecks is told of each start (/start), success and failure (/fail) of a run. Or a reference: env:NAME, file:PATH.';
comment on column pgcron.jobs.late_after is 'An occurrence that has not started after this time is an incident. Null: nobody is told.';
comment on column pgcron.jobs.long_after is 'A run that takes longer than this is an incident; it goes on. Null: three times as long as any of its last twenty, and ten minutes at least.';

alter table pgcron.settings
    add column installation uuid not null default gen_random_uuid(),
    add column muted_until timestamptz check (isfinite(muted_until)),
    add column heartbeat_url text check (heartbeat_url ~ '^(https?://|env:|file:).+'),
    add column cool_down interval not null default '10 minutes' check (isfinite(cool_down) and cool_down >= '0');
comment on column pgcron.settings.installation is 'Tells the incidents of this installation from those of others, where several share a channel.';
comment on column pgcron.settings.muted_until is 'No alert about anything before this instant. What is still wrong then is told then.';
comment on column pgcron.settings.heartbeat_url is 'Some worker calls it once a minute, so that a monitor outside notices when all of them are gone. Or a reference: env:NAME, file:PATH.';
comment on column pgcron.settings.cool_down is 'A job that fails again so soon after it has recovered is the same incident, and a channel hears of it again only after this time.';

create table pgcron.watch (
    only_row          boolean primary key default true check (only_row),
    watched_at        timestamptz not null default '-infinity',
    heartbeat_sent_at timestamptz not null default '-infinity'
);
insert into pgcron.watch default values;
comment on table pgcron.watch is 'One row: when some worker last did what only one has to do. Written by workers.';
comment on column pgcron.watch.only_row is 'Always true: there is just one row.';
comment on column pgcron.watch.watched_at is 'When somebody last looked for late and long runs, and for who is still to be told.';
comment on column pgcron.watch.heartbeat_sent_at is 'When settings.heartbeat_url was last called.';

create index jobs_watched_for_late_runs on pgcron.jobs (id) where late_after is not null and enabled;

alter table pgcron.runs add column in_incident boolean not null default false;
comment on column pgcron.runs.in_incident is 'True: its job had an open incident when this run was claimed, so that its start or success may close one.';

alter table pgcron.incidents
    add column kind text not null default 'failing' check (kind in ('failing', 'late', 'long', 'invalid')),
    add column reopened integer not null default 0 check (reopened >= 0);
-- No foreign key: its lock on the job would come after those on runs, and a job that is being deleted waits for its runs.
alter table pgcron.incidents drop constraint incidents_job_id_fkey;
drop index pgcron.incidents_open;
create unique index incidents_open on pgcron.incidents (job_id, kind) where closed_at is null;
comment on table pgcron.incidents is 'Something that is wrong with a job, from when it was first seen until it is right again. One of each kind at a time.';
comment on column pgcron.incidents.kind is 'failing (no attempts left), late (not started in time, or missed), long (still running), invalid (it cannot be scheduled).';
comment on column pgcron.incidents.event is 'What was seen last: failed, timed_out, lost, launch_failed, late, missed, long or invalid.';
comment on column pgcron.incidents.failures is 'How often it was seen: with kind failing the failures in a row, counted over occurrences.';
comment on column pgcron.incidents.reopened is 'How often it came back within settings.cool_down.';

alter table pgcron.channels add column told_at timestamptz;
comment on column pgcron.channels.told_at is 'When the channel last took a message.';

alter table pgcron.alerts
    add column level integer not null default 1,
    add column repeat integer not null default 0,
    add column first_tried_at timestamptz,
    add column in_hand boolean not null default false;
comment on column pgcron.alerts.first_tried_at is 'When it was first tried: a day later it is given up.';
comment on column pgcron.alerts.in_hand is 'A worker has it. Still true when it is taken again: that worker has died, and the message may come a second time.';
comment on column pgcron.alerts.level is 'The min_failures of the route that it was written for.';
comment on column pgcron.alerts.repeat is 'How often the same was said before.';
drop index pgcron.alerts_unsent;
drop index pgcron.alerts_incident;
create index alerts_incident on pgcron.alerts (incident_id, channel_id, id);
create index alerts_unsent on pgcron.alerts (channel_id, send_at, id) where sent_at is null and given_up_at is null;
create index alerts_given_up on pgcron.alerts (given_up_at) where given_up_at is not null;
create index alerts_sent on pgcron.alerts (channel_id, sent_at) where sent_at is not null;

-- ------------------------------------------------------------------------------------------------ messages

create function pgcron.alert_facts(job pgcron.jobs, run pgcron.runs, incident pgcron.incidents)
returns jsonb language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return jsonb_strip_nulls(jsonb_build_object(
        'job', coalesce(job.name, incident.job_name), 'kind', job.kind, 'queue', job.queue, 'tags', to_jsonb(job.tags),
        'owner', job.owner, 'timezone', job.timezone, 'max_attempts', job.max_attempts, 'next_run_at', job.next_run_at,
        'problem', job.problem, 'paused_reason', job.paused_reason, 'redact', to_jsonb(job.redact),
        'incident', incident.id, 'kind_of_incident', incident.kind, 'failures', incident.failures, 'since', incident.opened_at,
        'run', run.id, 'status', run.status, 'scheduled_for', run.scheduled_for, 'started_at', run.started_at,
        'finished_at', run.finished_at, 'attempt', run.attempt, 'exit_code', run.exit_code, 'error', left(run.error, 4000),
        'reason', left(run.reason, 1000), 'output', right(run.output, 4000), 'missed_count', run.missed_count,
        'missed_until', run.missed_until, 'worker', (select w.name from pgcron.workers w where w.id = run.worker_id),
        'host', (select w.host from pgcron.workers w where w.id = run.worker_id)));
end $$;
revoke all on function pgcron.alert_facts(pgcron.jobs, pgcron.runs, pgcron.incidents) from public;
comment on function pgcron.alert_facts(pgcron.jobs, pgcron.runs, pgcron.incidents) is 'What a message about an incident can say.';

-- Which channels are still to hear of an open incident, each by the highest of its routes that has been reached.
create function pgcron.tell(incident pgcron.incidents, job pgcron.jobs, run pgcron.runs, at timestamptz)
returns integer language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    told integer;
begin
    if coalesce(job.muted_until > tell.at, false)
       or exists (select from pgcron.settings s where s.muted_until > tell.at) then
        return 0;
    end if;
    insert into pgcron.alerts (channel_id, incident_id, job_name, run_id, event, dedup_key, payload, level, repeat, send_at, created_at)
    select due.channel_id, incident.id, incident.job_name, run.id, incident.event,
           'incident/' || incident.id || '/' || incident.reopened || '/' || due.level || '/' || due.repeat,
           -- A subquery, so that it is worked out once for all channels, and only where somebody is told.
           (select pgcron.alert_facts(job, run, incident)) || jsonb_build_object('event', incident.event, 'repeat', due.repeat),
           due.level, due.repeat, tell.at, tell.at
      from (
        select distinct on (c.id) c.id as channel_id, coalesce(r.min_failures, 1) as level, r.repeat_every,
               coalesce(last.repeat, -1) + 1 as repeat, last.event as last_event, last.level as last_level, last.at as last_at
          from pgcron.channels c
          left join pgcron.routes r on r.channel_id = c.id
          left join lateral (
                select a.event, a.level, a.created_at as at,
                       case when a.event = 'recovered' then -1 else a.repeat end as repeat
                  from pgcron.alerts a
                 where a.channel_id = c.id and a.incident_id = incident.id and a.event <> 'acknowledged'
                 order by a.id desc limit 1) as last on true
         where c.enabled and coalesce(c.muted_until <= tell.at, true)
           and incident.failures >= coalesce(r.min_failures, 1)
           -- A channel without a route hears of every job that has failed for good.
           and case when r.id is null then incident.event in ('failed', 'timed_out', 'lost', 'launch_failed', 'invalid')
                    else incident.event = any(r.events) and (r.queue is null or r.queue = job.queue) and job.tags @> r.tags
                         and job.name like replace(replace(replace(replace(r.job_pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')
               end
         order by c.id, coalesce(r.min_failures, 1) desc, r.repeat_every nulls last) as due
     -- A channel that is being removed is waited for: its alerts' foreign key must not keep a run from ending.
     cross join lateral (select from pgcron.channels k where k.id = due.channel_id for key share) as there
     where due.last_event is null
        or (due.last_event = 'recovered' and due.last_at <= tell.at - (select cool_down from pgcron.settings))
        -- Somebody who has taken it on needs to be told no louder, and not again.
        or (due.last_event <> 'recovered' and incident.acknowledged_at is null
            and (due.last_level < due.level
                 -- LEAST and GREATEST pass over nulls.
                 or due.repeat_every is not null and due.last_at <= tell.at - greatest(due.repeat_every, least(due.repeat_every * power(2, least(due.repeat - 1, 10)), interval '1 day'))))
    on conflict (channel_id, dedup_key) do nothing;
    get diagnostics told = row_count;
    return told;
end $$;
revoke all on function pgcron.tell(pgcron.incidents, pgcron.jobs, pgcron.runs, timestamptz) from public;
comment on function pgcron.tell(pgcron.incidents, pgcron.jobs, pgcron.runs, timestamptz) is
    'Writes an alert for each channel that is to hear of an open incident now: for the first time, louder, or again. Nobody is told while the job, the channel or everything is muted.';

-- ------------------------------------------------------------------------------------------ changes of state

create function pgcron.open_incident(job pgcron.jobs, kind text, event text, run pgcron.runs, at timestamptz)
returns pgcron.incidents language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    incident pgcron.incidents;
begin
    update pgcron.incidents i
       set failures = case when i.closed_at is not null then 1
                           -- One more attempt at the same occurrence, by hand.
                           when exists (select from pgcron.runs l
                                         where l.id = i.last_run_id and l.scheduled_for = open_incident.run.scheduled_for
                                           and l.backfill = open_incident.run.backfill and l.attempt < open_incident.run.attempt)
                           then i.failures
                           else i.failures + 1 end,
           event = open_incident.event, job_name = open_incident.job.name,
           last_run_id = coalesce(open_incident.run.id, i.last_run_id), reopened = i.reopened + (i.closed_at is not null)::int,
           acknowledged_at = case when i.closed_at is null then i.acknowledged_at end,
           acknowledged_by = case when i.closed_at is null then i.acknowledged_by end,
           closed_at = null
     where i.id = (
        select o.id from pgcron.incidents o
         where o.job_id = open_incident.job.id and o.kind = open_incident.kind
           and (o.closed_at is null or o.closed_at > open_incident.at - (select cool_down from pgcron.settings))
         order by o.closed_at desc nulls first, o.id desc
         limit 1)
    returning i.* into incident;
    if not found then
        insert into pgcron.incidents as i (job_id, job_name, kind, event, opened_at, first_run_id, last_run_id)
        values (job.id, job.name, open_incident.kind, open_incident.event, open_incident.at, run.id, run.id)
        on conflict (job_id, kind) where closed_at is null do update
           set failures = i.failures + 1, event = excluded.event, last_run_id = excluded.last_run_id
        returning i.* into incident;
    end if;
    perform pgcron.tell(incident, open_incident.job, open_incident.run, open_incident.at);
    return incident;
end $$;
revoke all on function pgcron.open_incident(pgcron.jobs, text, text, pgcron.runs, timestamptz) from public;
comment on function pgcron.open_incident(pgcron.jobs, text, text, pgcron.runs, timestamptz) is
    'Opens the incident of this kind, counts it once more where it is open, or opens it again where it has just been closed; and tells who is to be told.';

create function pgcron.close_incident(job pgcron.jobs, kind text, run pgcron.runs, at timestamptz, because text default null)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    incident pgcron.incidents;
begin
    update pgcron.incidents i set closed_at = close_incident.at
     where i.job_id = close_incident.job.id and i.kind = close_incident.kind and i.closed_at is null
    returning i.* into incident;
    if not found then
        return;
    end if;
    -- Who was told that it is broken is told that it is mended, muted or not; who was not told hears nothing.
    insert into pgcron.alerts (channel_id, incident_id, job_name, run_id, event, dedup_key, payload, send_at, created_at)
    select c.id, incident.id, incident.job_name, run.id, 'recovered',
           'incident/' || incident.id || '/' || incident.reopened || '/recovered',
           (select pgcron.alert_facts(job, run, incident))
               || jsonb_strip_nulls(jsonb_build_object('event', 'recovered', 'was', incident.event, 'because', close_incident.because)),
           close_incident.at, close_incident.at
      from pgcron.channels c
     cross join lateral (select from pgcron.channels k where k.id = c.id for key share) as there
     where c.enabled
       and (select a.event <> 'recovered' from pgcron.alerts a
             where a.channel_id = c.id and a.incident_id = incident.id and a.event <> 'acknowledged'
             order by a.id desc limit 1)
       and (not exists (select from pgcron.routes r where r.channel_id = c.id)
            or exists (select from pgcron.routes r where r.channel_id = c.id and 'recovered' = any(r.events)))
    on conflict (channel_id, dedup_key) do nothing;
end $$;
revoke all on function pgcron.close_incident(pgcron.jobs, text, pgcron.runs, timestamptz, text) from public;
comment on function pgcron.close_incident(pgcron.jobs, text, pgcron.runs, timestamptz, text) is
    'Closes the open incident of this kind, if there is one, and tells those who had been told of it. because: why, where the job does not work again.';

-- ----------------------------------------------------------------------------------------------- triggers

create function pgcron.note_run() returns trigger language plpgsql set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    job pgcron.jobs;
    at timestamptz := coalesce(new.finished_at, new.started_at, clock_timestamp());
begin
    select * into job from pgcron.jobs where id = new.job_id;
    if not found then
        return null;
    end if;
    if new.in_incident and new.status <> 'running' and exists (
        select from pgcron.incidents i
         where i.job_id = new.job_id and i.kind = 'long' and i.closed_at is null and i.last_run_id = new.id)
    then
        perform pgcron.close_incident(job, 'long', new, at);
    end if;
    case
        when new.status = 'running' then
            perform pgcron.close_incident(job, 'late', new, at);
        when new.status = 'missed' then
            -- What fell due while the job was held was somebody's will: it is written down when they resume with catch-up.
            if job.enabled and coalesce(coalesce(new.missed_until, new.scheduled_for) > job.paused_until, true) then
                perform pgcron.open_incident(job, 'late', 'missed', new, at);
            end if;
        when new.status = 'succeeded' then
            if not new.backfill then
                perform pgcron.close_incident(job, 'failing', new, at);
            end if;
        else
            -- Written by the statement that ended this one, where attempts remain.
            if new.status in ('failed', 'timed_out', 'lost', 'interrupted') and not new.backfill and not exists (
                select from pgcron.runs r
                 where r.job_id = new.job_id and r.scheduled_for = new.scheduled_for and r.backfill = new.backfill
                   and r.attempt = new.attempt + 1)
            then
                perform pgcron.open_incident(job, 'failing', case
                    when new.status in ('timed_out', 'lost') then new.status
                    when new.error like 'launch failed: %' then 'launch_failed'
                    else 'failed' end, new, at);
            end if;
    end case;
    return null;
end $$;
revoke all on function pgcron.note_run() from public;
comment on function pgcron.note_run() is 'Trigger of pgcron.runs: what the start, end or loss of a run means for the incidents of its job.';
create trigger note_run after update of status on pgcron.runs for each row
    when (old.status is distinct from new.status and new.job_id is not null
          and (new.status in ('failed', 'timed_out', 'lost', 'interrupted', 'missed')
               or new.in_incident and new.status in ('running', 'succeeded', 'cancelled')))
    execute function pgcron.note_run();
create trigger note_missed_run after insert on pgcron.runs for each row when (new.status = 'missed') execute function pgcron.note_run();

create function pgcron.note_problem() returns trigger language plpgsql set search_path = pg_catalog, pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
begin
    if new.problem is null then
        perform pgcron.close_incident(new, 'invalid', null, clock_timestamp());
    else
        perform pgcron.open_incident(new, 'invalid', 'invalid', null, clock_timestamp());
    end if;
    return null;
end $$;
revoke all on function pgcron.note_problem() from public;
comment on function pgcron.note_problem() is 'Trigger of pgcron.jobs: a job that cannot be scheduled is an incident until it can.';
create trigger note_problem after update on pgcron.jobs for each row
    when (new.problem is not null and new.problem is distinct from old.problem
          or new.problem is null and new.planned and not old.planned) execute function pgcron.note_problem();

create function pgcron.close_incidents_of_removed_job() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    kind text;
begin
    for kind in select i.kind from pgcron.incidents i where i.job_id = old.id and i.closed_at is null order by i.kind loop
        perform pgcron.close_incident(old, kind, null, clock_timestamp(), 'the job was removed');
    end loop;
    update pgcron.incidents set job_id = null where job_id = old.id;
    return null;
end $$;
revoke all on function pgcron.close_incidents_of_removed_job() from public;
comment on function pgcron.close_incidents_of_removed_job() is 'Trigger of pgcron.jobs: what is gone is no longer wrong.';
-- After the foreign key of runs (triggers fire by name), which waits for runs that are being ended and may open incidents.
create trigger close_incidents after delete on pgcron.jobs for each row execute function pgcron.close_incidents_of_removed_job();

create function pgcron.clear_paused_reason() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.paused_reason := null;
    return new;
end $$;
revoke all on function pgcron.clear_paused_reason() from public;
comment on function pgcron.clear_paused_reason() is 'Trigger of pgcron.jobs: whoever enables a job has seen why it was disabled.';
create trigger clear_paused_reason before update of enabled on pgcron.jobs for each row
    when (new.enabled and not old.enabled) execute function pgcron.clear_paused_reason();

create function pgcron.notify_alerts() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from added) then
        perform pg_notify('pgcron', 'alerts');
    end if;
    return null;
end $$;
revoke all on function pgcron.notify_alerts() from public;
comment on function pgcron.notify_alerts() is 'Trigger of pgcron.alerts: wakes the workers when there is something to send.';
create trigger notify_alerts after insert on pgcron.alerts referencing new table as added
    for each statement execute function pgcron.notify_alerts();
create trigger notify_channels after update of enabled, muted_until on pgcron.channels for each statement execute function pgcron.notify_workers('alerts');
