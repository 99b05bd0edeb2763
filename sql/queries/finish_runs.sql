-- Finish: running -> a final state, for runs that this worker still holds (the fence: id, worker and state), and with
-- retry_in (seconds) the next attempt as a queued run, unless the job was removed, disabled or paused meanwhile; and the runs
-- that follow: chained jobs, and what the run asked for itself. Used by reap as well, in the dead worker's name.
-- The jobs of all coming runs are locked first, as everywhere before runs: a job that is being deleted waits for its runs,
-- and the new run's foreign key would wait for the job.
-- Rows: the ids that were changed. A run that does not come back was taken away; nothing of it may be changed.
with outcome as materialized (
    select * from unnest(%(run_ids)s::bigint[], %(statuses)s::text[], %(exit_codes)s::int[], %(errors)s::text[],
                         %(reasons)s::text[], %(results)s::text[], %(progress)s::text[], %(states)s::text[],
                         %(next_runs)s::text[], %(retry_in)s::float8[])
        as o(run_id, status, exit_code, error, reason, result, progress, state, next_runs, retry_in)
), following as materialized (
    select o.run_id, f.job_id, f.job_name, f.delay, f.args, f.state
      from outcome o
     cross join lateral pgcron.followers(o.run_id, o.status, o.retry_in is not null, o.state::jsonb, o.next_runs::jsonb) as f
     -- Most installations have no chain, and most runs ask for nothing.
     where o.next_runs is not null or (select true from pgcron.chains limit 1)
), followed_jobs as materialized (
    select id from pgcron.jobs where id = any(array(select job_id from following)) order by id for no key update
), retried_jobs as materialized (
    select id from pgcron.jobs
     where id = any(array(select r.job_id from outcome o join pgcron.runs r on r.id = o.run_id where o.retry_in is not null))
     order by id
       for key share
), finished as (
    update pgcron.runs r
       set status = o.status, finished_at = coalesce(%(now)s::timestamptz, clock_timestamp()),
           exit_code = o.exit_code, error = o.error, result = o.result::jsonb,
           progress = coalesce(o.progress::jsonb, r.progress), state = coalesce(o.state::jsonb, r.state),
           reason = case when exists (select from following f where f.run_id = o.run_id and f.job_id is null)
                         then concat_ws('; ', o.reason, (
                             select 'there is no job ' || string_agg(distinct quote_literal(f.job_name), ', ') || ' to run next'
                               from following f where f.run_id = o.run_id and f.job_id is null))
                         else o.reason end
      from outcome o
     where r.id = o.run_id and r.worker_id = %(worker_id)s and r.status = 'running'
       -- Always true: it makes the locks come first.
       and (select count(*) from followed_jobs) + (select count(*) from retried_jobs) >= 0
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
), started as (
    -- The array is complete before the first call: no run of this batch may still be unwritten when a call looks at it.
    select made.run_id
      from following w
     cross join lateral pgcron.enqueue_run(
           w.job_id, 'chain', coalesce(%(now)s::timestamptz, clock_timestamp()) + w.delay, args => w.args, state => w.state,
           parent_run_id => w.run_id) as made
     where w.run_id = any(array(select id from finished)) and w.job_id is not null
)
select id from finished where (select count(*) from started) >= 0
