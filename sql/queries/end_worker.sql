-- Stop in order, or reap: the worker's row is closed. Row: none if it was closed already.
update pgcron.workers set ended_at = clock_timestamp(), end_reason = %(reason)s, stopping = true
 where id = %(id)s and ended_at is null
returning id
