-- Deliver: the channel has taken these, in one message.
with sent as (
    update pgcron.alerts set sent_at = coalesce(%(now)s::timestamptz, clock_timestamp()), error = null
     where id = any(%(ids)s::bigint[]) and sent_at is null
    returning channel_id
)
update pgcron.channels set told_at = coalesce(%(now)s::timestamptz, clock_timestamp())
 where id = any(array(select channel_id from sent))
