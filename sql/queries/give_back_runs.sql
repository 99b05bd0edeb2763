-- After a claim whose COMMIT got no answer: running -> queued, for runs that this worker holds and never began; or cancelled,
-- where the job was removed, disabled or paused meanwhile.
with own as materialized (
    select r.id, r.trigger in ('manual', 'backfill', 'chain') or j.enabled and (j.paused_until is null or j.paused_until <= now()) as wanted,
           j.id is not null as there
      from pgcron.runs r left join pgcron.jobs j on j.id = r.job_id
     where r.id = any(%(run_ids)s::bigint[]) and r.worker_id = %(worker_id)s and r.status = 'running'
)
update pgcron.runs r
   set status = case when o.there and o.wanted then 'queued' else 'cancelled' end,
       worker_id = null, lane = null, started_at = null,
       finished_at = case when not (o.there and o.wanted) then clock_timestamp() end,
       reason = case when not o.there then 'the job was removed' when not o.wanted then 'the job was disabled or paused' end
  from own o
 where r.id = o.id and r.worker_id = %(worker_id)s and r.status = 'running'
