-- On a new session by way of a pooler, which passes on no settings with the connection: makes them.
select count(set_config(s.name, s.value, false)) from unnest(%(names)s::text[], %(values)s::text[]) as s(name, value)
