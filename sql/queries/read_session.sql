-- On each new session: the server's number for it, and whether it can write.
-- The session may be for jobs, under the search_path of its role: nothing here may be looked up in it.
select pg_catalog.pg_backend_pid(),
       pg_catalog.pg_is_in_recovery() or pg_catalog.current_setting('transaction_read_only') operator(pg_catalog.=) 'on'
