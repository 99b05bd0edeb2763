-- Cancel: queued -> cancelled at once; running: its worker is asked to stop it. Final: unchanged.
-- Row: the status before. No row: no such run.
with target as (
    select id, status from pgcron.runs where id = %(run_id)s for update
), withdrawn as (
    update pgcron.runs r set status = 'cancelled', reason = %(reason)s, finished_at = clock_timestamp()
      from target t where r.id = t.id and t.status = 'queued'
), asked as (
    update pgcron.runs r set cancel_requested_at = coalesce(r.cancel_requested_at, clock_timestamp())
      from target t where r.id = t.id and t.status = 'running'
)
select status from target
