-- Add a channel. Row: its id, and the names of others with the very same target. No row: there is one of that name.
with made as (
    insert into pgcron.channels (name, target, timezone, quiet_from, quiet_until, digest_every, template)
    values (%(name)s, %(target)s, %(timezone)s, %(quiet_from)s, %(quiet_until)s, %(digest_every)s, %(template)s)
    on conflict (name) do nothing
    returning id
)
select made.id, array(select c.name from pgcron.channels c where c.target = %(target)s order by c.name) from made
