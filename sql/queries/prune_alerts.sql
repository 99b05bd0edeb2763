-- Prune: alerts and incidents that are over and older than settings.keep_for. What has waited all that time for a channel that
-- takes nothing (disabled, muted, or there is no worker that sends) is given up, with a mark, and goes when that is as old: the
-- outbox has a bound. Row: how many rows went.
with old as materialized (
    select clock.now, clock.now - (select keep_for from pgcron.settings) as before
      from (select coalesce(%(now)s::timestamptz, now()) as now) clock
), abandoned as (
    update pgcron.alerts a
       set given_up_at = old.now, error = coalesce(a.error, 'it waited longer than settings.keep_for, and nobody tried to send it')
      from old
     where a.id = any(array(
        select id from pgcron.alerts
         where created_at < (select before from old) and sent_at is null and given_up_at is null and not in_hand
         order by id
         limit %(limit)s
           for update skip locked))
), gone_alerts as (
    delete from pgcron.alerts
     where id = any(array(
        select id from pgcron.alerts
         where created_at < (select before from old) and (sent_at is not null or given_up_at < (select before from old))
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
