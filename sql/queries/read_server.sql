-- For the doctor: the server, what the role may do, how full it is, and the oldest open transaction that the role may see, also
-- a prepared one (without a pid, its name as application). A limit of -1 is none.
select current_setting('server_version_num')::int as version_number, current_setting('server_version') as version,
       session_user::text as role, current_database()::text as database, clock_timestamp() as now,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true)::int, 0) as connections,
       (select sum(numbackends)::int from pg_catalog.pg_stat_database) as connections_used,
       case when role.rolsuper then -1 else role.rolconnlimit end as role_limit,
       (select count(*)::int from pg_catalog.pg_stat_activity a where a.usesysid = role.oid) as role_used,
       case when role.rolsuper then -1 else here.datconnlimit end as database_limit,
       (select count(*)::int from pg_catalog.pg_stat_activity a where a.datid = here.oid and a.usesysid is not null) as database_used,
       has_function_privilege('pg_catalog.pg_terminate_backend(int, bigint)', 'execute') as may_terminate,
       old.pid as oldest_pid, old.role as oldest_role, old.application as oldest_application, old.state as oldest_state,
       clock_timestamp() - old.began_at as oldest_age
  from pg_catalog.pg_roles role
  join pg_catalog.pg_database here on here.datname = current_database()
  left join lateral (
    select a.pid, a.usename::text as role, a.application_name as application, a.state, a.xact_start as began_at
      from pg_catalog.pg_stat_activity a
     where a.xact_start is not null and a.pid <> pg_backend_pid() and a.datname = current_database() and a.backend_type = 'client backend'
    union all
    select null, p.owner::text, p.gid, 'prepared', p.prepared from pg_catalog.pg_prepared_xacts p where p.database = current_database()
     order by began_at limit 1) old on true
 where role.rolname = session_user
