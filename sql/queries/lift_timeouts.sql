-- SQL job whose text has set a limit of its own: it must not strike the record of its success.
select pg_catalog.set_config('statement_timeout', '0', true), pg_catalog.set_config('lock_timeout', '0', true)
