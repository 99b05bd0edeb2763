-- Demo: the job that it shows on the screen, as a newcomer would write it: five columns are enough.
-- pgcron.run_id says to the work which run it belongs to.
insert into pgcron.jobs (name, schedule, timezone, kind, command)
values ('report', '@every 2s', 'UTC', 'sql',
        $$insert into public.report (run_id)
          values (current_setting('pgcron.run_id')::bigint)$$)
