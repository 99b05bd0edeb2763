-- Deliver: channels for which something waits, with all that decides whether a message may go now: how much waits (counted up
-- to a thousand), how many messages went in the last minute, the time; and seconds until the next that waits is due.
select c.id, c.name, c.target, c.timezone, c.template, c.quiet_from, c.quiet_until, c.digest_every, c.told_at,
       waiting.count, extract(epoch from waiting.next_at - coalesce(%(now)s::timestamptz, now()))::float8, (
           select count(distinct a.sent_at) from pgcron.alerts a
            where a.channel_id = c.id and a.sent_at > coalesce(%(now)s::timestamptz, now()) - interval '1 minute') as sent,
       coalesce(%(now)s::timestamptz, now()) as now
  from pgcron.channels c
 cross join lateral (
       select count(*) filter (where due.send_at <= coalesce(%(now)s::timestamptz, now())) as count, min(due.send_at) as next_at
         from (select a.send_at from pgcron.alerts a
                where a.channel_id = c.id and a.sent_at is null and a.given_up_at is null
                order by a.send_at
                limit 1000) as due) as waiting
 where c.enabled and (c.muted_until is null or c.muted_until <= coalesce(%(now)s::timestamptz, now()))
   and waiting.next_at is not null
 order by waiting.next_at
