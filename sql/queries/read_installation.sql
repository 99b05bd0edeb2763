-- What holds for all jobs, for their review: how long history is kept, the enabled channels, and the routes to them.
select s.keep_for,
       array(select c.name from pgcron.channels c where c.enabled order by c.name) as channels,
       (select coalesce(jsonb_agg(jsonb_build_object('channel', c.name, 'job_pattern', r.job_pattern, 'tags', r.tags,
                                                     'queue', r.queue, 'events', r.events)), '[]')
          from pgcron.routes r join pgcron.channels c on c.id = r.channel_id) as routes
  from pgcron.settings s
