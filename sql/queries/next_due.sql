-- When is there something to do? Asked before a worker sleeps.
-- Rows: one with queue null for jobs (due_in: seconds to the next planned time; negative is overdue; null also where the
-- first thousand are all left to workers with newer zone data, as due_jobs leaves them), then one per
-- (queue, priority) that has queued runs: is_due, and due_in seconds to its next run that is not due yet (null: none).
-- No row for jobs that are paused as a whole, nor for a paused queue.
with recursive lanes as (
    (select queue, priority from pgcron.runs where status = 'queued' order by queue, priority limit 1)
    union all
    select following.queue, following.priority
      from lanes
     cross join lateral (
        select queue, priority from pgcron.runs
         where status = 'queued' and (queue, priority) > (lanes.queue, lanes.priority)
         order by queue, priority limit 1) following
), clock as materialized (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as now where not coalesce((select paused from pgcron.settings), false)
)
select null as queue, null as priority, null as max_running, null as is_due,
       extract(epoch from (select first.next_run_at
                             from (select id, next_run_at, zone_data from pgcron.jobs
                                    where enabled and next_run_at is not null order by next_run_at, id limit 1000) first
                            where coalesce(first.zone_data, '') collate "C" <= %(zone_data)s collate "C"
                               or first.zone_data collate "C" > (select coalesce(max(w.zone_data collate "C"), '') from pgcron.workers w
                                                                  where w.ended_at is null and not w.stopping)
                            order by first.next_run_at, first.id limit 1) - clock.now)::float8 as due_in
  from clock
union all
select lanes.queue, lanes.priority, queues.max_running,
       exists (select from pgcron.runs r where r.status = 'queued' and r.queue = lanes.queue and r.priority = lanes.priority and r.run_at <= clock.now),
       extract(epoch from (select r.run_at from pgcron.runs r
                            where r.status = 'queued' and r.queue = lanes.queue and r.priority = lanes.priority and r.run_at > clock.now
                            order by r.run_at limit 1) - clock.now)::float8
  from clock cross join lanes left join pgcron.queues on queues.name = lanes.queue
 where queues.paused is not true
