-- Watch: the installation's sign of life to a monitor outside, once a minute. Row: the address that this worker is to call now.
update pgcron.watch w set heartbeat_sent_at = coalesce(%(now)s::timestamptz, clock_timestamp())
  from pgcron.settings s
 where s.heartbeat_url is not null
   and (w.heartbeat_sent_at <= coalesce(%(now)s::timestamptz, clock_timestamp()) - interval '1 minute'
        or w.heartbeat_sent_at > coalesce(%(now)s::timestamptz, clock_timestamp()) + interval '1 minute')
returning s.heartbeat_url
