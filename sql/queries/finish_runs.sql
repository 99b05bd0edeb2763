-- Finish: running -> a final state, for runs that this worker still holds (the fence: id, worker and state), and with
-- retry_in (seconds) the next attempt as a queued run, unless the job was removed, disabled or paused meanwhile. Used by
-- reap as well, in the dead worker's name.
-- The jobs of coming retries are locked first, as everywhere before their runs: a job that is being deleted waits for its
-- runs, and the retry's foreign key would wait for the job.
-- Rows: the ids that were changed. A run that does not come back was taken away; nothing of it may be changed.
with outcome as materialized (
    select * from unnest(%(run_ids)s::bigint[], %(statuses)s::text[], %(exit_codes)s::int[], %(errors)s::text[],
                         %(reasons)s::text[], %(results)s::text[], %(retry_in)s::float8[])
        as o(run_id, status, exit_code, error, reason, result, retry_in)
), retried_jobs as materialized (
    select id from pgcron.jobs
     where id = any(array(select r.job_id from outcome o join pgcron.runs r on r.id = o.run_id where o.retry_in is not null))
     order by id
       for key share
), finished as (
    update pgcron.runs r
       set status = o.status, finished_at = coalesce(%(now)s::timestamptz, clock_timestamp()),
           exit_code = o.exit_code, error = o.error, reason = o.reason, result = o.result::jsonb
      from outcome o
     where r.id = o.run_id and r.worker_id = %(worker_id)s and r.status = 'running'
       and (select count(*) from retried_jobs) >= 0 -- always true: it makes the locks come first
    returning r.id, r.job_id, r.scheduled_for, r.attempt, r.backfill, r.max_running, r.args, r.state, o.retry_in
), retried as (
    insert into pgcron.runs (job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at, attempt, backfill,
                             parent_run_id, args, state, max_running)
    select j.id, j.name, j.kind, j.queue, j.priority, 'retry', f.scheduled_for,
           coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => f.retry_in), f.attempt + 1, f.backfill,
           f.id, f.args, f.state, case when f.backfill then f.max_running when j.overlap = 'allow' then j.max_running else 1 end
      from finished f join pgcron.jobs j on j.id = f.job_id
     where f.retry_in is not null and j.enabled
       and (j.paused_until is null or j.paused_until <= coalesce(%(now)s::timestamptz, clock_timestamp()))
    on conflict (job_id, scheduled_for, backfill, attempt) do nothing
)
select id from finished
