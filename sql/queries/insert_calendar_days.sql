-- Add days to a calendar, or label them anew. Row: whether they are new. No row: there is no such calendar.
insert into pgcron.calendar_days (calendar, first_day, last_day, label)
select c.name, %(first_day)s, %(last_day)s, %(label)s from pgcron.calendars c where c.name = %(name)s
on conflict (calendar, first_day, last_day) do update set label = coalesce(excluded.label, calendar_days.label)
returning xmax = 0
