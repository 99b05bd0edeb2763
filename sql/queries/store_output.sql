-- Output of runs that this worker holds; in a statement of its own, so that its size or a full disk cannot hold up a state.
update pgcron.runs r
   set output = o.output, output_bytes = o.total_bytes, output_truncated = o.truncated
  from unnest(%(run_ids)s::bigint[], %(outputs)s::text[], %(total_bytes)s::bigint[], %(truncated)s::boolean[])
        as o(run_id, output, total_bytes, truncated)
 where r.id = o.run_id and r.worker_id = %(worker_id)s and r.status = 'running'
