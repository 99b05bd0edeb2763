-- Delete a calendar with its days, unless a job excludes it. Row: its name. No row: there is none, or a job excludes it.
delete from pgcron.calendars c
 where c.name = %(name)s and not exists (select from pgcron.jobs j where c.name = any(j.exclude))
returning c.name
