-- One incident, in the form of list_incidents.
select i.id, i.job_name, i.kind, i.event, i.opened_at, i.closed_at, i.failures, i.reopened, i.first_run_id, i.last_run_id,
       i.acknowledged_at, i.acknowledged_by,
       array(select distinct c.name from pgcron.alerts a join pgcron.channels c on c.id = a.channel_id
              where a.incident_id = i.id and a.sent_at is not null order by c.name) as told
  from pgcron.incidents i
 where i.id = %(incident_id)s
