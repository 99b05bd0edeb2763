-- Prune: rows of workers that ended more than a day ago.
delete from pgcron.workers where ended_at < coalesce(%(now)s::timestamptz, now()) - interval '1 day'
