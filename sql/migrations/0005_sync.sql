-- compatible
-- Jobs that a file made: what it said of them last, so that an edit by hand is told from an edit of the file; and when it
-- said nothing of them any more.

alter table pgcron.jobs
    add column synced jsonb check (jsonb_typeof(synced) = 'object'),
    add column removed_at timestamptz check (isfinite(removed_at));
comment on column pgcron.jobs.synced is 'What sync wrote last, in the form of the file: what differs from it was edited by hand. Null: made without a file.';
comment on column pgcron.jobs.removed_at is 'When the file that made this job no longer had it: disabled then, and deleted two weeks later. Enabling it by hand keeps it.';
comment on column pgcron.jobs.source is 'Where the definition comes from: sql, cli, file:NAME or python:MODULE.';
create index jobs_removed on pgcron.jobs (removed_at) where removed_at is not null;
create index jobs_synced on pgcron.jobs (source) where synced is not null;

create function pgcron.take_over_removed_job() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.removed_at := null;
    new.source := 'sql';
    new.synced := null;
    return new;
end $$;
revoke all on function pgcron.take_over_removed_job() from public;
comment on function pgcron.take_over_removed_job() is 'Trigger of pgcron.jobs: whoever enables a job that its file no longer has wants it; it is nobody''s but theirs from then on.';
create trigger take_over_removed_job before update of enabled on pgcron.jobs for each row
    when (new.enabled and not old.enabled and new.removed_at is not distinct from old.removed_at and new.removed_at is not null)
    execute function pgcron.take_over_removed_job();
