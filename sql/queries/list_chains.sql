-- Chains by the names of their jobs; of all jobs, or those that one job is part of.
select u.name, d.name, c.on_status, c.delay
  from pgcron.chains c join pgcron.jobs u on u.id = c.upstream_id join pgcron.jobs d on d.id = c.downstream_id
 where %(job)s::text is null or %(job)s in (u.name, d.name)
 order by u.name, d.name
