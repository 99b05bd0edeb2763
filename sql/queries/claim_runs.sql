-- Claim: queued -> running for this worker, at most `limit` due runs of one queue and priority, oldest first.
-- What the job says by now holds, not what it said when the run was made: kind, overlap, and whether it is stopped.
-- Row locks come first, in a materialized and limited set; the advisory lock is tried only for those, in one CASE, so that
-- no plan can lock more. Exclusive jobs: one row each, lock exclusive; others: a free lane, lock shared.
-- Rows: the claimed runs with their job's definition; and, with id null, the jobs whose lock somebody else has: their runs
-- stay queued. The last column counts the candidates: as many as `limit` means that there may be more.
with candidates as materialized (
    select r.id, r.job_id, r.run_at, b.max_running
      from pgcron.runs r
     cross join lateral (
        -- Looked up by its key for each candidate in turn: `offset 0` keeps the planner from joining all jobs first.
        select * from pgcron.jobs where id = r.job_id offset 0) j
     -- What the job says of overlap; a backfill may have said otherwise for its own runs.
     cross join lateral (
        select case when r.backfill then r.max_running when j.overlap = 'allow' then j.max_running else 1 end as max_running) b
     where r.status = 'queued' and r.queue = %(queue)s and r.priority = %(priority)s
       and r.run_at <= coalesce(%(now)s::timestamptz, now())
       and j.kind = any(%(kinds)s::text[])
       and r.job_id <> all(%(refused)s::int[])
       -- Too late to be begun: it is about to be closed as missed.
       and (r.trigger <> 'schedule' or coalesce(r.run_at >= coalesce(%(now)s::timestamptz, now())
            - coalesce(j.catch_up_window, case when j.catch_up = 'skip' then interval '60 seconds' end), true))
       and (r.trigger not in ('schedule', 'retry')
            or j.enabled and (j.paused_until is null or j.paused_until <= coalesce(%(now)s::timestamptz, now())))
       -- Jobs that are full already, all at once: the backlog of a busy one is passed over without a look at each run.
       -- NOT IN, since Postgres hashes it; a running run without a job is left out, or nothing would ever be "not in".
       and r.job_id not in (
           select o.job_id from pgcron.runs o where o.status = 'running' and o.job_id is not null
            group by o.job_id having count(*) >= min(o.max_running))
       and (b.max_running is null
            or (select count(*) from pgcron.runs o where o.status = 'running' and o.job_id = r.job_id) < b.max_running)
     order by r.run_at, r.id
     limit %(limit)s
       for update of r skip locked
), numbered as (
    select id, job_id, max_running, row_number() over (partition by job_id order by run_at, id) as turn from candidates
), placed as materialized (
    select id, job_id, max_running,
           case when max_running is null then null
                when max_running = 1 then 1
                else (select lane from generate_series(1, max_running) as lane
                       where not exists (select from pgcron.runs b where b.status = 'running' and b.job_id = numbered.job_id and b.lane = lane.lane)
                       order by lane offset turn - 1 limit 1)
           end as lane
      from numbered
     where max_running is null or turn <= max_running
), granted as materialized (
    select id, max_running, lane from placed
     where case when max_running is not null and lane is null then false
                when max_running = 1 then pg_try_advisory_lock('pgcron'::regnamespace::oid::int, job_id)
                else pg_try_advisory_lock_shared('pgcron'::regnamespace::oid::int, job_id) end
), claimed as (
    update pgcron.runs r
       set status = 'running', kind = j.kind, max_running = g.max_running, lane = g.lane, worker_id = %(worker_id)s,
           started_at = coalesce(%(now)s::timestamptz, clock_timestamp()),
           in_incident = exists (select from pgcron.incidents i where i.job_id = r.job_id and i.closed_at is null)
      from unnest(array(select id from granted), array(select max_running from granted), array(select lane from granted))
               as g(id, max_running, lane),
           pgcron.jobs j
     where r.id = g.id and j.id = r.job_id
    returning r.id, r.job_id, r.job_name, j.kind, j.command, coalesce(r.args, j.args) as args, r.scheduled_for, r.attempt,
              r.max_running is not distinct from 1 as exclusive, j.timeout, j.kill_grace, j.max_attempts, j.retry_delay,
              j.retry_backoff, j.retry_max_delay, j.env, j.env_from, j.working_dir, j.memory_limit_mb, j.output_limit_kb, r.state,
              j.heartbeat_url
)
select c.*, (select count(*) from candidates) from claimed c
union all
select null, p.job_id, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
       (select count(*) from candidates)
  from placed p
 where (p.max_running is null or p.lane is not null) and p.id not in (select id from granted)
