-- Which migrations the database has. Rows: version, breaking.
select version, breaking from pgcron.schema_migrations order by version
