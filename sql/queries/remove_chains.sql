-- Delete many chains: a JSON array of the names of both jobs. What is not there is not missed.
delete from pgcron.chains c
 using jsonb_to_recordset(%(chains)s::jsonb) as j(upstream text, downstream text), pgcron.jobs u, pgcron.jobs d
 where u.name = j.upstream and d.name = j.downstream and c.upstream_id = u.id and c.downstream_id = d.id
