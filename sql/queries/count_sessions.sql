-- Reap, after the second step: how many sessions the dead worker still has of those that this role may end.
select count(*)::int
  from pg_stat_activity
 where application_name = %(application_name)s and pid <> pg_backend_pid()
   and pg_has_role(current_user, usesysid, 'member')
