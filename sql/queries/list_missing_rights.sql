-- For the doctor: what this role lacks of the rights that workers need: all on what they write, less on what only people do,
-- and to execute the schema's functions. Rows: table or function, right. No row: nothing lacks.
select c.relname, needed.privilege
  from pg_catalog.pg_class c
  left join (values ('schema_migrations', '{select}'::text[]), ('settings', '{select}'), ('calendars', '{select}'),
                    ('calendar_days', '{select}'), ('chains', '{select}'), ('routes', '{select}'),
                    ('queues', '{select,update}'), ('channels', '{select,update}')) as less(name, privileges) on less.name = c.relname
 cross join unnest(coalesce(less.privileges, '{select,insert,update,delete}')) as needed(privilege)
 where c.relnamespace = 'pgcron'::regnamespace and c.relkind = 'r' and not has_table_privilege(c.oid, needed.privilege)
union all
select p.proname || '()', 'execute'
  from pg_catalog.pg_proc p
 where p.pronamespace = 'pgcron'::regnamespace and p.prorettype <> 'trigger'::regtype and not has_function_privilege(p.oid, 'execute')
 order by 1, 2
