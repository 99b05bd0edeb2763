-- Watch over the others: the beat and lease of every living worker, and (beat null) of workers that have running runs but no
-- living row, for example because somebody deleted it.
select id, beat, extract(epoch from lease)::float8 from pgcron.workers where ended_at is null
union all
select distinct r.worker_id, null::bigint, null::float8
  from pgcron.runs r
 where r.status = 'running' and not exists (select from pgcron.workers w where w.id = r.worker_id and w.ended_at is null)
