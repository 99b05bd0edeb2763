-- Demo: where its SQL job does its work. One row a run, so that work and history can be compared.
create table public.report (
    run_id  bigint not null,
    made_at timestamptz not null default clock_timestamp()
)
