-- For the doctor: what this role lacks of the rights that people and workers need. Rows: table, right. No row: nothing lacks.
select needed.name, needed.privilege
  from (values ('jobs', 'select'), ('jobs', 'insert'), ('jobs', 'update'), ('jobs', 'delete'), ('runs', 'select'), ('runs', 'insert'),
               ('runs', 'update'), ('runs', 'delete'), ('workers', 'select'), ('workers', 'insert'), ('workers', 'update'),
               ('workers', 'delete'), ('settings', 'select'), ('queues', 'select'), ('queues', 'update'), ('calendars', 'select'),
               ('calendar_days', 'select')) as needed(name, privilege)
 where not has_table_privilege('pgcron.' || needed.name, needed.privilege)
