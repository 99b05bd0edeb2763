-- Start: a worker enters itself under the id it has just drawn.
insert into pgcron.workers (id, name, host, pid, version, zone_data, queues, kinds, slots, lease)
values (%(id)s, %(name)s, %(host)s, %(pid)s, %(version)s, %(zone_data)s, %(queues)s, %(kinds)s, %(slots)s, %(lease)s)
