-- What a run has printed so far. Row: status, output (null: nothing), output_bytes, output_truncated. No row: no such run.
select status, output, output_bytes, output_truncated from pgcron.runs where id = %(run_id)s
