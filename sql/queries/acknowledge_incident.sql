-- Somebody takes an open incident on: it is not repeated. The channels that were told of it hear that (a pager stops). Row: whether
-- somebody had before. No row: there is none, or it is closed.
with taken as (
    update pgcron.incidents i set acknowledged_at = clock_timestamp(), acknowledged_by = %(who)s
      from (select id, acknowledged_at is not null as before from pgcron.incidents where id = %(incident_id)s for update) as was
     where i.id = was.id and i.closed_at is null
    returning i.*, was.before
), told as (
    insert into pgcron.alerts (channel_id, incident_id, job_name, run_id, event, dedup_key, payload)
    select distinct a.channel_id, t.id, t.job_name, t.last_run_id, 'acknowledged', 'incident/' || t.id || '/' || t.reopened || '/acknowledged',
           jsonb_build_object('event', 'acknowledged', 'job', t.job_name, 'incident', t.id, 'acknowledged_by', %(who)s::text,
                              'kind_of_incident', t.kind, 'failures', t.failures, 'since', t.opened_at, 'run', t.last_run_id)
      from taken t join pgcron.alerts a on a.incident_id = t.id and a.event <> 'recovered'
    on conflict (channel_id, dedup_key) do nothing
)
select before from taken
