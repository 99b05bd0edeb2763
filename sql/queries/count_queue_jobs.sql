-- How many jobs each queue has. No row for a queue that no job names.
select queue, count(*)::int from pgcron.jobs group by queue
