-- Remove a job: its queued runs are cancelled by a trigger, a running one goes on, its history stays without job_id.
-- Row: the job's id. No row: no such job.
delete from pgcron.jobs where name = %(name)s returning id
