-- Prune: alerts and incidents that are over and older than settings.keep_for. Row: how many rows went.
with old as materialized (
    select coalesce(%(now)s::timestamptz, now()) - (select keep_for from pgcron.settings) as before
), gone_alerts as (
    delete from pgcron.alerts
     where id = any(array(
        select id from pgcron.alerts
         where created_at < (select before from old) and (sent_at is not null or given_up_at is not null)
         order by id
         limit %(limit)s
           for update skip locked))
    returning id
), gone_incidents as (
    delete from pgcron.incidents
     where id = any(array(
        select id from pgcron.incidents where closed_at < (select before from old) order by id limit %(limit)s for update skip locked))
    returning id
)
select (select count(*) from gone_alerts)::int + (select count(*) from gone_incidents)::int
