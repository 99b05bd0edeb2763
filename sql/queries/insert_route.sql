-- Add a route to a channel by its name. Row: its id. No row: there is no such channel.
insert into pgcron.routes (channel_id, job_pattern, tags, queue, events, min_failures, repeat_every)
select c.id, %(job_pattern)s, %(tags)s, %(queue)s, %(events)s, %(min_failures)s, %(repeat_every)s
  from pgcron.channels c
 where c.name = %(channel)s
returning id
