-- Queues, for people: those with a row of their own, with live runs, named by a living worker, or `named`.
-- Rows: due and later count queued runs, up to 1,000 for each priority; due_since is when the oldest of them fell due;
-- workers are those that take new runs of it, at most ten names, and slots is what they have together.
with recursive clock as materialized (
    select coalesce(%(now)s::timestamptz, now()) as now
), lanes as (
    (select queue, priority from pgcron.runs where status = 'queued' order by queue, priority limit 1)
    union all
    select following.queue, following.priority
      from lanes
     cross join lateral (
        select queue, priority from pgcron.runs
         where status = 'queued' and (queue, priority) > (lanes.queue, lanes.priority)
         order by queue, priority limit 1) following
), waiting as (
    select lanes.queue, sum(due.count) as due, sum(later.count) as later, min(due.since) as due_since
      from clock cross join lanes
     cross join lateral (
        select count(*), min(run_at) as since
          from (select r.run_at from pgcron.runs r
                 where r.status = 'queued' and r.queue = lanes.queue and r.priority = lanes.priority and r.run_at <= clock.now
                 order by r.run_at limit 1000) oldest) due
     cross join lateral (
        select count(*)
          from (select from pgcron.runs r
                 where r.status = 'queued' and r.queue = lanes.queue and r.priority = lanes.priority and r.run_at > clock.now
                 limit 1000) counted) later
     group by lanes.queue
), running as (
    select r.queue, count(*) from pgcron.runs r where r.status = 'running' group by r.queue
), serving as (
    select w.name, w.queues, w.slots
      from clock, pgcron.workers w
     where w.ended_at is null and not w.stopping and w.heartbeat_at >= clock.now - w.lease
), names as (
    select name from pgcron.queues
    union select queue from waiting
    union select queue from running
    union select unnest(queues) from serving
    union select unnest(%(named)s::text[])
)
select names.name, coalesce(waiting.due, 0)::int as due, coalesce(waiting.later, 0)::int as later, waiting.due_since,
       coalesce(running.count, 0)::int as running, q.max_running, coalesce(q.paused, false) as paused,
       array(select s.name from serving s where s.queues is null or names.name = any(s.queues) order by s.name limit 10) as workers,
       (select coalesce(sum(s.slots), 0)::int from serving s where s.queues is null or names.name = any(s.queues)) as slots
  from names
  left join pgcron.queues q on q.name = names.name
  left join waiting on waiting.queue = names.name
  left join running on running.queue = names.name
 order by names.name
