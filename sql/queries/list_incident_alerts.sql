-- What was said, and is to be said, of one incident, in order.
select a.id, c.name as channel, a.event, a.level, a.repeat, a.created_at, a.send_at, a.tries, a.sent_at, a.given_up_at, a.error
  from pgcron.alerts a join pgcron.channels c on c.id = a.channel_id
 where a.incident_id = %(incident_id)s
 order by a.id
