-- Withdraw: queued -> cancelled, for runs of jobs that are disabled or paused by now. A trigger does it with the edit itself;
-- what is left is a next attempt that was being written at that very moment, which neither could see. No claim takes it, but
-- it would be in the way of later runs, and begin when the job goes on. Row: how many.
with stopped as materialized (
    select r.id, j.enabled
      from pgcron.jobs j
     cross join lateral (
        select q.id from pgcron.runs q
         where q.job_id = j.id and q.status = 'queued' and q.trigger in ('schedule', 'retry')
         order by q.id limit 100) r
     where (not j.enabled or j.paused_until is not null)
       and (not j.enabled or j.paused_until > coalesce(%(now)s::timestamptz, now()))
     limit %(limit)s
), withdrawn as (
    update pgcron.runs r
       set status = 'cancelled', finished_at = coalesce(%(now)s::timestamptz, clock_timestamp()),
           reason = case when s.enabled then 'the job was paused' else 'the job was disabled' end
      from stopped s
     where r.id = s.id and r.status = 'queued'
    returning r.id
)
select count(*)::int from withdrawn
