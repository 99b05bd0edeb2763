-- No alert about a job before an instant; null: alerts again. Row: its name. No row: there is no such job.
update pgcron.jobs set muted_until = %(until)s where name = %(name)s returning name
