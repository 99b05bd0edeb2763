-- After a reconnect: which system and which of its timelines this is. Another one than before: a standby was promoted, and what
-- the old server acknowledged may be unknown here. Readable by an ordinary role. Row: one text.
select system_identifier || '/' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)
  from pg_catalog.pg_control_system()
