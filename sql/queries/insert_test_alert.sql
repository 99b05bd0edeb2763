-- A message that only says that the channel works. Row: its id. No row: there is no such channel.
insert into pgcron.alerts (channel_id, job_name, event, dedup_key, payload)
select c.id, 'test', 'test', 'test/' || gen_random_uuid(), jsonb_build_object('event', 'test', 'channel', c.name, 'owner', current_user)
  from pgcron.channels c
 where c.name = %(channel)s
returning id
