-- Add a chain between two jobs by name, or change the one that is there. Row: whether it is new.
-- No row: one of the jobs does not exist. A circle is refused by a trigger.
insert into pgcron.chains as c (upstream_id, downstream_id, on_status, delay)
select u.id, d.id, %(on_status)s, %(delay)s from pgcron.jobs u, pgcron.jobs d where u.name = %(upstream)s and d.name = %(downstream)s
on conflict (upstream_id, downstream_id) do update set on_status = excluded.on_status, delay = excluded.delay
returning c.xmax = 0
