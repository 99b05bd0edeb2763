-- Fire, second step: nothing -> queued, skipped or missed, for jobs that this transaction has locked.
-- Rows: queue, priority and the queue's limit of the queued ones, for the claim that follows; none of a paused queue. An
-- occurrence that is there already stays.
with planned as (
    select * from unnest(%(job_ids)s::int[], %(scheduled_for)s::timestamptz[], %(run_at)s::timestamptz[], %(statuses)s::text[],
                         %(reasons)s::text[], %(missed_counts)s::bigint[], %(missed_until)s::timestamptz[])
        as p(job_id, scheduled_for, run_at, status, reason, missed_count, missed_until)
), inserted as (
    insert into pgcron.runs (job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at, status, reason,
                             max_running, missed_count, missed_until, finished_at)
    select j.id, j.name, j.kind, j.queue, j.priority, 'schedule', p.scheduled_for, p.run_at, p.status, p.reason,
           case when j.overlap = 'allow' then j.max_running else 1 end, p.missed_count, p.missed_until,
           case when p.status <> 'queued' then coalesce(%(now)s::timestamptz, clock_timestamp()) end
      from planned p join pgcron.jobs j on j.id = p.job_id
    on conflict (job_id, scheduled_for, backfill, attempt) do nothing
    returning status, queue, priority
)
select distinct i.queue, i.priority, q.max_running
  from inserted i left join pgcron.queues q on q.name = i.queue
 where i.status = 'queued' and q.paused is not true
