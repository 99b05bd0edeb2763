-- On each new session: the server's number for it, and whether it can write.
select pg_backend_pid(), pg_is_in_recovery() or current_setting('transaction_read_only') = 'on'
