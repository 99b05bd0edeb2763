-- Disable jobs that their file no longer has, and note since when; a trigger cancels their queued runs. A row a job: its name.
-- A missing row: it was changed or removed since it was read.
update pgcron.jobs t
   set enabled = false, removed_at = coalesce(%(now)s::timestamptz, now()), paused_reason = %(reason)s
  from jsonb_to_recordset(%(jobs)s::jsonb) as j(id integer, read_at timestamptz)
 where t.id = j.id and t.updated_at = j.read_at
returning t.name
