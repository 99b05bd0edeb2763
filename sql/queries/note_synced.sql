-- Note for many jobs that are as their file says what it says, and that it is theirs: a JSON array. Nothing else changes.
-- A row a job: its name. A missing row: it was changed or removed since it was read.
update pgcron.jobs t
   set source = j.source, synced = j.synced
  from jsonb_to_recordset(%(jobs)s::jsonb) as j(id integer, read_at timestamptz, source text, synced jsonb)
 where t.id = j.id and t.updated_at = j.read_at
returning t.name
