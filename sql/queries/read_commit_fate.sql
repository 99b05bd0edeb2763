-- SQL job whose COMMIT on another database got no answer, on a new session there.
-- Row: committed, aborted or in progress; null where the transaction is so long ago that nobody knows any more.
-- The session's search_path is the job's: nothing here may be looked up in it, neither function, operator nor type.
select pg_catalog.pg_xact_status(%(transaction_id)s::pg_catalog.text::pg_catalog.xid8)
