-- Reap, second step: ends what sessions the dead worker still has, so that nothing of it can commit and its locks are free.
-- Its random id in application_name names them. Only where the role may: others are left and their locks delay the retry.
-- Row: how many were found, and how many of them have ended.
with sessions as materialized (
    select pid from pg_stat_activity
     where application_name = %(application_name)s and pid <> pg_backend_pid()
       and pg_has_role(current_user, usesysid, 'member')
     limit 2000
)
select count(*)::int, count(*) filter (where pg_terminate_backend(pid))::int from sessions
