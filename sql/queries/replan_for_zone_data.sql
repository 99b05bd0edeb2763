-- New zone data: jobs whose next time was computed with an older release are planned anew from where they are accounted for.
-- A worker with older data never asks for it. Not what is due already: that fires first. Row: how many.
with stale as materialized (
    select id from pgcron.jobs
     where enabled and planned and next_run_at > coalesce(%(now)s::timestamptz, now())
       and zone_data collate "C" < %(zone_data)s collate "C"
     order by id
     limit %(limit)s
       for no key update skip locked
), replanned as (
    update pgcron.jobs j
       set planned = false, anchored_at = greatest(j.anchored_at, j.fired_until), next_run_at = coalesce(%(now)s::timestamptz, now())
     where j.id = any(array(select id from stale))
    returning j.id
)
select count(*)::int from replanned
