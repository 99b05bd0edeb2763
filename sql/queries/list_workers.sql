-- Workers, those that run first; with `all` also those that ended within the last day.
-- state: alive, stopping, silent (no heartbeat for a whole lease, by the database's clock), or how it ended.
select w.id, w.name, w.host, w.pid, w.version, w.zone_data, w.queues, w.kinds, w.slots,
       (select count(*) from pgcron.runs r where r.worker_id = w.id and r.status = 'running') as running,
       w.lease, w.started_at, w.heartbeat_at, w.ended_at,
       case when w.ended_at is not null then coalesce(w.end_reason, 'stopped')
            when w.heartbeat_at < coalesce(%(now)s::timestamptz, now()) - w.lease then 'silent'
            when w.stopping then 'stopping'
            else 'alive' end as state
  from pgcron.workers w
 where %(all)s or w.ended_at is null
 order by w.ended_at is not null, w.ended_at desc, w.name, w.id
 limit %(limit)s
