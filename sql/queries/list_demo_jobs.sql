-- Demo, live table: every job and seconds until it is due next (null: never again).
select name, case when schedule like '@at %' then '@at ' || split_part(schedule, 'T', 2) else schedule end,
       extract(epoch from next_run_at - clock_timestamp())::float8
  from pgcron.jobs
 order by id
