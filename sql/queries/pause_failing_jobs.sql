-- Watch: jobs that have failed pause_after times in a row are disabled, with the reason; the channels that were told of the
-- failures are told of that. Rows: their names, and the reason.
with failing as materialized (
    select j.id, i.id as incident_id, i.reopened,
           format('disabled after %%s failures in a row, the last one %%s', i.failures, replace(i.event, '_', ' ')) as reason
      from pgcron.incidents i join pgcron.jobs j on j.id = i.job_id
     where i.kind = 'failing' and i.closed_at is null and i.failures >= j.pause_after and j.enabled
     order by j.id
     limit %(limit)s
       for no key update of j skip locked
), paused as (
    update pgcron.jobs j set enabled = false, paused_reason = f.reason
      from failing f
     where j.id = f.id
    returning j.id, j.name, j.paused_reason
), told as (
    -- Said once, below what the incident's own messages count as.
    insert into pgcron.alerts (channel_id, incident_id, job_name, run_id, event, dedup_key, payload, level, repeat)
    select c.id, i.id, p.name, i.last_run_id, i.event, 'incident/' || i.id || '/' || i.reopened || '/paused/' || i.failures,
           pgcron.alert_facts(j, r, i) || jsonb_build_object('event', i.event, 'paused_reason', p.paused_reason), last.level, last.repeat
      from failing f
      join paused p on p.id = f.id
      join pgcron.incidents i on i.id = f.incident_id
      join pgcron.jobs j on j.id = f.id
      left join pgcron.runs r on r.id = i.last_run_id
      join pgcron.channels c on c.enabled
     cross join lateral (
           select a.event, a.level, a.repeat from pgcron.alerts a
            where a.channel_id = c.id and a.incident_id = i.id and a.event <> 'acknowledged'
            order by a.id desc limit 1) as last
     where last.event <> 'recovered'
    on conflict (channel_id, dedup_key) do nothing
)
select name, paused_reason from paused
