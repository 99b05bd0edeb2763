-- A queue is paused, or goes on (`paused` false): its runs wait, what runs goes on. A trigger wakes the workers.
-- Row: whether it was paused before. No row: it has no row of its own and was to go on, so there is nothing to change.
with before as (select paused from pgcron.queues where name = %(name)s)
insert into pgcron.queues (name, paused)
select %(name)s, %(paused)s where %(paused)s or exists (select from before)
on conflict (name) do update set paused = excluded.paused
returning coalesce((select paused from before), false)
