-- Demo: the work of its SQL job. Rows: the id of the run that did it.
select run_id from public.report
