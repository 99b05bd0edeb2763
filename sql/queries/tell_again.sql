-- Watch: open incidents, some at a time by their id: who is to be told louder, again, or now that a mute has ended. They are
-- locked, so that what is being closed is not said to be open after that. Of a job that somebody has disabled nothing is repeated.
-- Row: the last incident that was looked at (null: there are no more), and how many alerts were written.
with open as materialized (
    select id from pgcron.incidents where closed_at is null and id > %(after_id)s order by id limit %(limit)s
), held as materialized (
    select id from pgcron.incidents where id = any(array(select id from open)) and closed_at is null
     order by id
       for no key update skip locked
), told as materialized (
    select pgcron.tell(i, j, r, coalesce(%(now)s::timestamptz, clock_timestamp())) as alerts
      from pgcron.incidents i
      join pgcron.jobs j on j.id = i.job_id
      left join pgcron.runs r on r.id = i.last_run_id
     where i.id = any(array(select id from held)) and (j.enabled or j.paused_reason is not null)
     order by i.id
)
select (select max(id) from open), (select coalesce(sum(alerts), 0)::int from told)
