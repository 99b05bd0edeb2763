-- Watch: jobs that have failed pause_after times in a row are disabled, with the reason. Rows: their names, and the reason.
with failing as materialized (
    select j.id, format('disabled after %%s failures in a row, the last one %%s', i.failures, replace(i.event, '_', ' ')) as reason
      from pgcron.incidents i join pgcron.jobs j on j.id = i.job_id
     where i.kind = 'failing' and i.closed_at is null and i.failures >= j.pause_after and j.enabled
     order by j.id
     limit %(limit)s
       for no key update of j skip locked
)
update pgcron.jobs j set enabled = false, paused_reason = f.reason
  from failing f
 where j.id = f.id
returning j.name, j.paused_reason
