-- SQL job, last statement of its transaction: running -> succeeded with the fence, commits together with the work; and the
-- runs that follow. The job's own functions have left its state and what it asked for in settings of this transaction.
-- COMMIT is sent behind it without waiting, so nothing changed must be an error: division by zero where the run was taken
-- away, or where the job's text has ended the transaction that held the lock (the transaction's id tells).
-- The session's search_path is the job's: nothing here may be looked up in it, neither function, operator nor type.
with said as materialized (
    select case when pg_catalog.current_setting('pgcron.state', true) operator(pg_catalog.<>) ''
                then pg_catalog.current_setting('pgcron.state', true)::pg_catalog.jsonb end as state,
           case when pg_catalog.current_setting('pgcron.next_runs', true) operator(pg_catalog.<>) ''
                then pg_catalog.current_setting('pgcron.next_runs', true)::pg_catalog.jsonb end as next_runs
), following as materialized (
    select f.job_id, f.delay, f.args, f.state
      from said s
     cross join lateral pgcron.followers(%(run_id)s::bigint, 'succeeded', false, s.state, s.next_runs) as f
     where s.next_runs is not null or (select true from pgcron.chains limit 1)
), followed_jobs as materialized (
    select j.id from pgcron.jobs j
     where j.id operator(pg_catalog.=) any(array(select f.job_id from following f))
     order by j.id using operator(pg_catalog.<)
       for no key update
), finished as (
    update pgcron.runs r
       set status = 'succeeded', finished_at = coalesce(%(now)s::pg_catalog.timestamptz, pg_catalog.clock_timestamp()),
           result = %(result)s::pg_catalog.text::pg_catalog.jsonb, output = %(output)s::pg_catalog.text,
           output_bytes = %(output_bytes)s::bigint, output_truncated = %(output_truncated)s::boolean,
           progress = coalesce(%(progress)s::pg_catalog.text::pg_catalog.jsonb, r.progress), state = coalesce(s.state, r.state)
      from said s
     where r.id operator(pg_catalog.=) %(run_id)s::bigint
       and r.worker_id operator(pg_catalog.=) %(worker_id)s::pg_catalog.uuid
       and r.status operator(pg_catalog.=) 'running'::pg_catalog.text
       and pg_catalog.pg_current_xact_id()::pg_catalog.text operator(pg_catalog.=) %(transaction_id)s::pg_catalog.text
       -- Always true: it makes the locks come first.
       and (select pg_catalog.count(*) from followed_jobs) operator(pg_catalog.>=) 0::bigint
    returning r.id
), started as (
    select made.run_id
      from following w
     cross join lateral pgcron.enqueue_run(
           w.job_id, 'chain', coalesce(%(now)s::pg_catalog.timestamptz, pg_catalog.clock_timestamp()) operator(pg_catalog.+) w.delay,
           args => w.args, state => w.state, parent_run_id => %(run_id)s::bigint) as made
     where w.job_id is not null and (select true from finished)
)
select 1::bigint operator(pg_catalog./) (select pg_catalog.count(*) from finished), (select pg_catalog.count(*) from started)
