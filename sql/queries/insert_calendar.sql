-- Add a calendar, without days. Row: its name. No row: there is one of that name.
insert into pgcron.calendars (name, description) values (%(name)s, %(description)s)
on conflict (name) do nothing
returning name
