-- Nothing is sent to a channel before an instant; null: again. Row: its name. No row: there is no such channel.
update pgcron.channels set muted_until = %(until)s where name = %(name)s returning name
