-- Deliver: the channel did not take these: another try after `retry_in` seconds; or none any more, a day after the first.
-- Row: how many were given up.
with postponed as (
    update pgcron.alerts
       set error = %(error)s, in_hand = false, send_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(retry_in)s),
           given_up_at = case when %(permanent)s or first_tried_at <= coalesce(%(now)s::timestamptz, clock_timestamp()) - interval '1 day'
                              then coalesce(%(now)s::timestamptz, clock_timestamp()) end
     where id = any(%(ids)s::bigint[]) and sent_at is null
    returning given_up_at
)
select count(given_up_at)::int from postponed
