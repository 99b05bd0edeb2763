-- Delete jobs, at most `limit`, that their file has not had for two weeks; their history stays without job_id. How many.
with gone as (
    delete from pgcron.jobs
     where id = any(array(
        select j.id from pgcron.jobs j
         where j.removed_at <= coalesce(%(now)s::timestamptz, now()) - interval '14 days' and not j.enabled
         order by j.removed_at
         limit %(limit)s
           for update skip locked))
    returning id)
select count(*) from gone
