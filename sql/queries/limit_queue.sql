-- At most so many runs of a queue at a time; null takes the limit away. What runs goes on. A trigger wakes the workers.
-- Row: the limit before. No row: it had no row of its own and was to have no limit, so there is nothing to change.
with before as (select max_running from pgcron.queues where name = %(name)s)
insert into pgcron.queues (name, max_running)
select %(name)s, %(max_running)s::int where %(max_running)s::int is not null or exists (select from before)
on conflict (name) do update set max_running = excluded.max_running
returning (select max_running from before)
