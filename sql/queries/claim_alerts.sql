-- Deliver: due alerts of one channel, oldest first, for one message. They are due again after `retry_in` seconds, so that those
-- of a worker that dies while sending are sent by another. What is said of an incident is said in its order: nothing overtakes
-- an alert that waits for its next try. Rows: the alerts; one that another worker has died with is marked as `resent`.
with due as materialized (
    select a.id, a.in_hand from pgcron.alerts a
     where a.channel_id = %(channel_id)s and a.sent_at is null and a.given_up_at is null
       and a.send_at <= coalesce(%(now)s::timestamptz, now())
       and not exists (
           select from (
               -- `offset 0`: by its incident, never by all that waits.
               select b.sent_at, b.given_up_at, b.send_at from pgcron.alerts b
                where b.incident_id = a.incident_id and b.channel_id = a.channel_id and b.id < a.id offset 0) as before
            where before.sent_at is null and before.given_up_at is null
              and before.send_at > coalesce(%(now)s::timestamptz, now()))
     order by a.id
     limit %(limit)s
       for update of a skip locked
), claimed as (
    update pgcron.alerts a
       set tries = a.tries + 1, in_hand = true,
           first_tried_at = coalesce(a.first_tried_at, %(now)s::timestamptz, clock_timestamp()),
           send_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(retry_in)s)
     where a.id = any(array(select id from due))
    returning a.id, a.event, a.job_name, a.incident_id, a.payload, a.created_at, a.tries
)
select c.id, c.event, c.job_name, 'pgcron/' || (select installation from pgcron.settings) || '/' || coalesce(c.incident_id, -c.id),
       case when d.in_hand then c.payload || '{"resent": true}' else c.payload end, c.created_at, c.tries
  from claimed c join due d on d.id = c.id
 order by c.id
