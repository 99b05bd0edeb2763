-- Reap, first step: the worker's row, if its beat still is what was observed and nobody else is reaping it.
select id from pgcron.workers where id = %(id)s and beat = %(beat)s and ended_at is null for update skip locked
