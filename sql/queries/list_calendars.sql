-- Calendars by name, or the one of that name, with their days in order and the jobs that exclude them.
select c.name, c.description,
       array(select j.name from pgcron.jobs j where c.name = any(j.exclude) order by j.name) as jobs,
       coalesce((select jsonb_agg(jsonb_build_array(d.first_day, d.last_day, d.label) order by d.first_day, d.last_day)
                   from pgcron.calendar_days d where d.calendar = c.name), '[]') as days
  from pgcron.calendars c
 where %(name)s::text is null or c.name = %(name)s
 order by c.name
