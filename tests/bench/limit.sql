-- The least that any scheduler over Postgres must do for a batch of 500: lock due jobs, write a run each, mark them done.
with chosen as (select id from due_job where next_run <= now() order by next_run, id limit 500 for update skip locked),
     moved as (update due_job set next_run = null where id = any(array(select id from chosen))),
     begun as (insert into done_run (job_id, due) select id, now() from chosen returning id)
select array_agg(id)::text as ids from begun \gset
update done_run set state = 'ok', finished = clock_timestamp() where id = any(:ids::bigint[]);
