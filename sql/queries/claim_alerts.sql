-- Deliver: due alerts of one channel, oldest first, for one message. They are due again after `retry_in` seconds, so that those
-- of a worker that dies while sending are sent by another. Rows: the alerts.
with claimed as (
    update pgcron.alerts a
       set tries = a.tries + 1,
           send_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(retry_in)s)
     where a.id = any(array(
        select id from pgcron.alerts
         where channel_id = %(channel_id)s and sent_at is null and given_up_at is null
           and send_at <= coalesce(%(now)s::timestamptz, now())
         order by id
         limit %(limit)s
           for update skip locked))
    returning a.id, a.event, a.job_name, a.incident_id, a.payload, a.created_at, a.tries
)
select id, event, job_name, 'pgcron/' || (select installation from pgcron.settings) || '/' || coalesce(incident_id, -id), payload,
       created_at, tries
  from claimed
 order by id
