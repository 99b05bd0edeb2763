-- On a new session by way of a pooler, which passes on no settings with the connection: makes them.
-- The session may be for jobs, under the search_path of its role: nothing here may be looked up in it.
select pg_catalog.count(pg_catalog.set_config(s.name, s.value, false))
  from rows from (pg_catalog.unnest(%(names)s::pg_catalog.text[]), pg_catalog.unnest(%(values)s::pg_catalog.text[])) as s(name, value)
