-- The first line of a screen that is drawn each second. Row: the clock, whether all is paused, and how many runs failed
-- within the last hour, counted up to 1,000.
select now() as now, s.paused,
       (select count(*) from (select from pgcron.runs r
                               where r.status in ('failed', 'timed_out', 'lost') and r.finished_at > now() - interval '1 hour'
                               limit 1000) counted)::int as failed_last_hour
  from pgcron.settings s
