-- Start: a worker enters itself under the id it has just drawn; once more, where the answer to COMMIT was lost. That counts
-- as a heartbeat: others may have been counting the lease from the first time on.
insert into pgcron.workers (id, name, host, pid, version, zone_data, queues, kinds, slots, lease)
values (%(id)s, %(name)s, %(host)s, %(pid)s, %(version)s, %(zone_data)s, %(queues)s, %(kinds)s, %(slots)s, %(lease)s)
on conflict (id) do update set beat = pgcron.workers.beat + 1, heartbeat_at = clock_timestamp()
