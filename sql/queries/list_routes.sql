-- Routes by channel and loudness, of all channels or of one; and how many jobs their name, tags and queue match now.
select r.id, c.name as channel, r.job_pattern, r.tags, r.queue, r.events, r.min_failures, r.repeat_every,
       (select count(*) from pgcron.jobs j
         where (r.queue is null or r.queue = j.queue) and j.tags @> r.tags
           and j.name like replace(replace(replace(replace(r.job_pattern, '\', '\\'), '%%', '\%%'), '_', '\_'), '*', '%%')) as jobs
  from pgcron.routes r join pgcron.channels c on c.id = r.channel_id
 where %(channel)s::text is null or c.name = %(channel)s
 order by c.name, r.min_failures, r.id
