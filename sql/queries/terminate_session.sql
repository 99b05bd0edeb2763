-- After a reconnect: ends the worker's own last control session, which the server may still believe to be connected.
-- Row: whether it has ended. No row: it was gone already.
select pg_terminate_backend(pid, 500) from pg_stat_activity
 where pid = %(pid)s and pid <> pg_backend_pid() and application_name = %(application_name)s
