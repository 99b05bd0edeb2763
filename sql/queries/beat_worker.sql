-- Heartbeat: one per worker, however many runs it has. Row: the database's clock. No row: it was reaped, all its runs are lost.
-- The beat is a number that this row has never had, also where a crash or a failover has forgotten its last ones: whoever
-- watches would take a new beat for an old one, and the worker for silent.
-- Not flushed by itself: a beat that a crash of the server forgets is no more than a beat that came late.
update pgcron.workers
   set beat = greatest(beat + 1, (extract(epoch from clock_timestamp()) * 1000000)::bigint), heartbeat_at = clock_timestamp(), stopping = %(stopping)s
 where id = %(id)s and ended_at is null
returning clock_timestamp(), (select set_config('synchronous_commit', 'off', true))
