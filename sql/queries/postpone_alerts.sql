-- Deliver: the channel did not take these: another try after `retry_in` seconds; or none any more, a day after they were written.
-- Row: how many were given up.
with postponed as (
    update pgcron.alerts
       set error = %(error)s, send_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + make_interval(secs => %(retry_in)s),
           given_up_at = case when %(permanent)s or created_at <= coalesce(%(now)s::timestamptz, clock_timestamp()) - interval '1 day'
                              then coalesce(%(now)s::timestamptz, clock_timestamp()) end
     where id = any(%(ids)s::bigint[]) and sent_at is null
    returning given_up_at
)
select count(given_up_at)::int from postponed
