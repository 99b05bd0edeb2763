-- New zone data: jobs whose next time was computed with an older release are planned anew from where they are accounted for
-- (fired_until), by a worker that has the new one. A worker with older data never asks for it. Not what is due already: that
-- fires first; nor what counts from the end of a run, which knows no zone. Row: how many.
with stale as materialized (
    select id from pgcron.jobs
     where enabled and planned and next_run_at > coalesce(%(now)s::timestamptz, now())
       and zone_data collate "C" < %(zone_data)s collate "C" and schedule !~* 'after\s+finish'
     order by id
     limit %(limit)s
       for no key update skip locked
), replanned as (
    update pgcron.jobs j
       set planned = false, zone_data = %(zone_data)s, next_run_at = coalesce(%(now)s::timestamptz, now())
     where j.id = any(array(select id from stale))
    returning j.id
)
select count(*)::int from replanned
