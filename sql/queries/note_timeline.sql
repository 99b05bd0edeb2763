-- Adopt: which server this is (system and timeline), and for how many seconds nothing may be begun, since it has only just taken
-- over: a whole lease for whoever notices it, the rest of one for those who come later. The longest lease of all counts.
-- A server that was seen in the future: the clock was set back, so nobody knows. Row: server, seconds.
with here as materialized (
    select system_identifier || '/' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) as server
      from pg_catalog.pg_control_system()
), lease as materialized (
    select greatest(%(lease)s::interval, (select max(w.lease) from pgcron.workers w where w.ended_at is null)) as longest
), noticed as (
    update pgcron.timeline t
       set server = here.server, noticed_at = case when t.server is null then '-infinity' else clock_timestamp() end
      from here
     where t.server is distinct from here.server
)
select here.server,
       extract(epoch from case when t.server is null then interval '0'
                               when t.server <> here.server or t.noticed_at > clock_timestamp() then lease.longest
                               when t.noticed_at = '-infinity' then interval '0'
                               else greatest(t.noticed_at + lease.longest - clock_timestamp(), interval '0') end)::float8
  from pgcron.timeline t, here, lease
