-- For the doctor: the server, what the role may do, how full it is, and the oldest transaction that the role may see.
select current_setting('server_version_num')::int as version_number, current_setting('server_version') as version,
       current_user::text as role, current_database()::text as database, clock_timestamp() as now,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as connections,
       (select sum(numbackends)::int from pg_catalog.pg_stat_database) as connections_used,
       has_function_privilege('pg_catalog.pg_terminate_backend(int, bigint)', 'execute') as may_terminate,
       old.pid as oldest_pid, old.usename::text as oldest_role, old.application_name as oldest_application,
       old.state as oldest_state, clock_timestamp() - old.xact_start as oldest_age
  from (select) one
  left join lateral (
    select a.pid, a.usename, a.application_name, a.state, a.xact_start from pg_catalog.pg_stat_activity a
     where a.xact_start is not null and a.pid <> pg_backend_pid() and a.datname = current_database() and a.backend_type = 'client backend'
     order by a.xact_start limit 1) old on true
