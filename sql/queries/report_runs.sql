-- Report: what running runs of this worker have said since the last time: output, progress, state. Null leaves what is there.
-- A row that somebody has locked is left for the next time, since this must never wait for a SQL job's own transaction.
-- Rows: the ids that were written.
with said as materialized (
    select * from unnest(%(run_ids)s::bigint[], %(outputs)s::text[], %(total_bytes)s::bigint[], %(truncated)s::boolean[],
                         %(progress)s::text[], %(states)s::text[])
        as s(run_id, output, total_bytes, truncated, progress, state)
), free as materialized (
    select id from pgcron.runs
     where id = any(%(run_ids)s::bigint[]) and worker_id = %(worker_id)s and status = 'running'
     order by id
       for no key update skip locked
)
update pgcron.runs r
   set output = coalesce(s.output, r.output), output_bytes = coalesce(s.total_bytes, r.output_bytes),
       output_truncated = coalesce(s.truncated, r.output_truncated),
       progress = coalesce(s.progress::jsonb, r.progress), state = coalesce(s.state::jsonb, r.state)
  from said s
 where r.id = s.run_id and r.id = any(array(select id from free))
returning r.id
