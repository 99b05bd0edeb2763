-- Add many chains between jobs by name, or change those that are there: a JSON array. A row a chain. A missing row: one of its
-- jobs does not exist. A circle is refused by a trigger.
insert into pgcron.chains as c (upstream_id, downstream_id, on_status, delay)
select u.id, d.id, j.on_status, j.delay
  from jsonb_to_recordset(%(chains)s::jsonb) as j(upstream text, downstream text, on_status text, delay interval)
  join pgcron.jobs u on u.name = j.upstream
  join pgcron.jobs d on d.name = j.downstream
on conflict (upstream_id, downstream_id) do update set on_status = excluded.on_status, delay = excluded.delay
returning c.upstream_id
