-- SQL job on another database, on a session here, before it begins there and once more right before its COMMIT there.
-- Row: whether the run is still this worker's, and what tells this installation from others that work on that database.
select exists (select from pgcron.runs where id = %(run_id)s and worker_id = %(worker_id)s and status = 'running'),
       (select min(applied_at)::text from pgcron.schema_migrations) || ' ' || current_database()
