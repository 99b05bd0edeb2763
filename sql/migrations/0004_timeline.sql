-- compatible
-- A standby that was promoted need not know what the old primary has acknowledged: who begins work there must know that, also a
-- worker that was started only afterwards.

create table pgcron.timeline (
    only_row   boolean primary key default true check (only_row),
    server     text,
    noticed_at timestamptz not null default '-infinity'
);
insert into pgcron.timeline default values;
comment on table pgcron.timeline is 'One row: which server this is, by the last worker that has looked. Another one than before: a standby was promoted, or a copy was made. Written by workers.';
comment on column pgcron.timeline.only_row is 'Always true: there is just one row.';
comment on column pgcron.timeline.server is 'Identifier of the system and number of its timeline. Null: no worker has been here yet.';
comment on column pgcron.timeline.noticed_at is 'When a worker first saw this one. For a lease from then on nothing is begun, while those who hold runs find out or stop them.';
