-- Written in the transaction that applied it.
insert into pgcron.schema_migrations (version, name, breaking) values (%(version)s, %(name)s, %(breaking)s)
