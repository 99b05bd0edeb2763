-- Delete a channel with its routes and all that waits for it. Row: its name. No row: there is none.
delete from pgcron.channels where name = %(name)s returning name
