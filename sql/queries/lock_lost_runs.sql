-- Reap, third step: the running runs of a dead worker, locked, with what decides on their next attempt; where `run_ids` is not
-- null only these, whose end a living worker cannot know after a failover. Their jobs, and those
-- chained to them, are locked first, as everywhere before runs. One that somebody else has locked is left for the next time.
with own as materialized (
    select r.id, r.job_id from pgcron.runs r where r.worker_id = %(worker_id)s and r.status = 'running'
       and (%(run_ids)s::bigint[] is null or r.id = any(%(run_ids)s::bigint[])) order by r.id limit %(limit)s
), followed as materialized (
    select id from pgcron.jobs
     where id = any(array(select c.downstream_id from pgcron.chains c where c.upstream_id = any(array(select job_id from own))))
     order by id
       for no key update
), held as materialized (
    select id from pgcron.jobs where id = any(array(select job_id from own)) order by id for key share
)
select r.id, r.job_id, r.job_name, r.attempt, j.max_attempts, j.retry_delay, j.retry_backoff, j.retry_max_delay
  from pgcron.runs r left join pgcron.jobs j on j.id = r.job_id
 where r.id = any(array(select id from own)) and r.status = 'running' and (select count(*) from followed) + (select count(*) from held) >= 0
 order by r.job_id, r.id
   for update of r skip locked
