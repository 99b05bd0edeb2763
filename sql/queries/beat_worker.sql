-- Heartbeat: one per worker, however many runs it has. Row: the database's clock. No row: it was reaped, all its runs are lost.
-- Not flushed by itself: a beat that a crash of the server forgets is no more than a beat that came late.
update pgcron.workers
   set beat = beat + 1, heartbeat_at = clock_timestamp(), stopping = %(stopping)s
 where id = %(id)s and ended_at is null
returning clock_timestamp(), (select set_config('synchronous_commit', 'off', true))
