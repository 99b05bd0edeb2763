-- Resume: enabled and not paused; the schedule counts from now. Row: the job's id. No row: no such job.
update pgcron.jobs set enabled = true, paused_until = null where name = %(name)s returning id
