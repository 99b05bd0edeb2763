-- Delete a chain between two jobs by name; runs that it has queued stay. Row: how it was. No row: there is none.
delete from pgcron.chains c
 using pgcron.jobs u, pgcron.jobs d
 where c.upstream_id = u.id and c.downstream_id = d.id and u.name = %(upstream)s and d.name = %(downstream)s
returning c.on_status
