-- Jobs that something is wrong with, at most `limit`: by their open incidents, of which there are `total`. Those that fail
-- most come first.
select i.id, i.job_name, i.kind, i.event, i.failures, i.opened_at, i.acknowledged_by, (count(*) over ())::int as total,
       (select left(coalesce(r.error, r.reason, 'exit code ' || r.exit_code), 1000) from pgcron.runs r where r.id = i.last_run_id) as error
  from pgcron.incidents i
 where i.closed_at is null
 order by i.failures desc, i.id desc
 limit %(limit)s
