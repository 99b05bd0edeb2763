-- Delete a route. Row: the name of its channel. No row: there is none.
delete from pgcron.routes r using pgcron.channels c
 where r.id = %(route_id)s and c.id = r.channel_id
returning c.name
