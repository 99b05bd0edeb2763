-- Deliver: the channel has taken these, in one message, which has one time. The channel is locked before its alerts, as by its removal.
with told as materialized (
    select id from pgcron.channels
     where id = any(array(select channel_id from pgcron.alerts where id = any(%(ids)s::bigint[])))
       for no key update
), sent as (
    update pgcron.alerts set sent_at = coalesce(%(now)s::timestamptz, statement_timestamp()), error = null, in_hand = false
     where id = any(%(ids)s::bigint[]) and sent_at is null and (select count(*) from told) > 0
    returning channel_id
)
update pgcron.channels set told_at = coalesce(%(now)s::timestamptz, statement_timestamp())
 where id = any(array(select channel_id from sent))
