-- Channels by name, or the one of that name, with what waits for them, what was given up, and what went wrong last.
select c.id, c.name, c.target, c.timezone, c.quiet_from, c.quiet_until, c.digest_every, c.template, c.enabled, c.muted_until,
       c.told_at, (select count(*) from pgcron.routes r where r.channel_id = c.id) as routes,
       (select count(*) from pgcron.alerts a where a.channel_id = c.id and a.sent_at is null and a.given_up_at is null) as waiting,
       (select count(*) from pgcron.alerts a where a.channel_id = c.id and a.given_up_at is not null) as given_up,
       (select a.error from pgcron.alerts a
         where a.channel_id = c.id and a.error is not null and a.sent_at is null
         order by a.send_at desc
         limit 1) as error
  from pgcron.channels c
 where %(name)s::text is null or c.name = %(name)s
 order by c.name
