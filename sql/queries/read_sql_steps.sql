-- SQL job whose record is not part of its own transaction, after its last statement: what it has saved and which runs it
-- asks for, as JSON; and the id of its transaction, where one is open that has written something.
-- The session's search_path is the job's: nothing here may be looked up in it, neither function, operator nor type.
select pg_catalog.current_setting('pgcron.state', true), pg_catalog.current_setting('pgcron.next_runs', true),
       pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text
