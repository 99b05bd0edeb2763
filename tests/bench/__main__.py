"""`python -m tests.bench [--quick]`: throughput, lateness and idle cost, beside pgbench's limit on the same server.

A fresh server with the settings of a small real one (fsync on), workers as real processes, one figure a line. Compare
figures of one run only: the machine decides the rest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from pgcron_runner.embedded import Server, start_temporary
from pgcron_runner.migrate import migrate_database

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "max_connections": "200",
    "shared_preload_libraries": "pg_stat_statements",
}
HERE = Path(__file__).parent
PYTHON = ("python", "tests.bench.noop:noop", '{"isolation": "thread"}')
SQL = ("sql", "select 1", "{}")
TRUE = ("shell", "/bin/true", '{"argv": ["/bin/true"]}')
Kind = tuple[str, str, str]
Connection = psycopg.Connection[tuple[Any, ...]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs, for a first look")
    scale = 10 if parser.parse_args().quick else 1
    with start_temporary(settings=SETTINGS) as server:
        print(f"PostgreSQL {server.version}, Unix socket, fsync on; Python {sys.version.split()[0]}")
        report_limit(server)
        for workers in (1, 2):
            report_throughput(server, "python no-op in the worker", PYTHON, 20_000 // scale, workers, slots=1000)
            report_throughput(server, "sql  select 1", SQL, 20_000 // scale, workers, slots=20)
            report_throughput(server, "shell /bin/true", TRUE, 2_000 // scale, workers, slots=20)
        report_lateness(server, jobs=1, seconds=20)
        report_lateness(server, jobs=1_000, seconds=20)
        report_idle(server, seconds=30 // (2 if scale > 1 else 1))


def report_limit(server: Server) -> None:
    """pgbench with the minimal SQL in batches of 500: what the server itself can do."""
    with database(server, migrate=False) as (dsn, connection):
        connection.execute(
            "create table due_job (id bigint generated always as identity primary key, next_run timestamptz)"
        )
        connection.execute("create index on due_job (next_run, id)")
        connection.execute(
            """create table done_run (id bigint generated always as identity primary key, job_id bigint not null,
               due timestamptz not null, finished timestamptz, state text not null default 'running')"""
        )
        connection.execute(
            "insert into due_job (next_run) select now() - interval '1 h' from generate_series(1, 600000)"
        )
        # Some history, or the plan would be a sequential scan for the whole run.
        connection.execute(
            "insert into done_run (job_id, due, state) select 0, now(), 'ok' from generate_series(1, 50000)"
        )
        connection.execute("vacuum analyze")
        for clients in (1, 2):
            before = done(connection)
            seconds = 4
            command = ["pgbench", "-n", "-M", "prepared", "-f", str(HERE / "limit.sql"), "-c", str(clients)]
            server.run(*command, "-j", str(clients), "-T", str(seconds), dsn)
            rate = (done(connection) - before) / seconds
            print(f"limit    pgbench, batches of 500, {clients} client(s): {rate:,.0f} runs/s")


def done(connection: Connection) -> int:
    row = connection.execute("select count(*) from done_run where state = 'ok' and job_id > 0").fetchone()
    assert row is not None
    return int(row[0])


def report_throughput(server: Server, label: str, kind: Kind, runs: int, workers: int, *, slots: int) -> None:
    """Runs that are queued already, each of a job of its own with its lock, fence and full history row."""
    with database(server) as (dsn, connection):
        add_jobs(connection, kind, runs, schedule="@manual")
        connection.execute(
            """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, max_running)
               select id, name, kind, 'manual', now(), now(), 1 from pgcron.jobs"""
        )
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
        with running_workers(dsn, workers, slots=slots):
            wait_until(connection, "select not exists (select from pgcron.runs where status in ('queued', 'running'))")
        row = connection.execute(
            """select count(*) filter (where status = 'succeeded'),
                      extract(epoch from max(finished_at) - min(started_at))::float8 from pgcron.runs"""
        ).fetchone()
        assert row is not None
        print(f"through  {label}, {workers} worker(s), {row[0]:,} runs: {row[0] / row[1]:,.0f} runs/s")


def report_lateness(server: Server, *, jobs: int, seconds: int) -> None:
    """Cron jobs that fall due in the same second, again and again; from the nominal time to the recorded start."""
    with database(server) as (dsn, connection), running_workers(dsn, 1, slots=1000):
        add_jobs(connection, PYTHON, jobs, schedule="*/5 * * * * *")
        time.sleep(seconds)
        row = connection.execute(
            """select count(*), count(distinct scheduled_for),
                      percentile_cont(array[0.5, 0.99]) within group (order by late),
                      max(extract(epoch from finished_at - scheduled_for))
                 from (select *, extract(epoch from started_at - scheduled_for)::float8 as late from pgcron.runs) r
                where status = 'succeeded'"""
        ).fetchone()
        assert row is not None
        p50, p99 = (1000 * value for value in row[2])
        print(
            f"lateness {jobs:,} job(s) due in one second, {row[1]} times: "
            f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, all recorded after {1000 * float(row[3]):.0f} ms"
        )


def report_idle(server: Server, *, seconds: int) -> None:
    """One worker with 10,000 jobs of which none is due: statements that the server sees."""
    with database(server) as (dsn, connection), running_workers(dsn, 1, slots=10):
        connection.execute("create extension if not exists pg_stat_statements")
        add_jobs(connection, SQL, 10_000, schedule="0 0 1 1 *")
        wait_until(connection, "select not exists (select from pgcron.jobs where not planned)")
        time.sleep(6)
        before = statements(connection)
        time.sleep(seconds)
        rate = (statements(connection) - before) / seconds
        print(f"idle     one worker, 10,000 jobs, nothing due: {rate:.2f} statements/s")


def statements(connection: Connection) -> int:
    row = connection.execute(
        """select coalesce(sum(calls), 0) from pg_stat_statements
            where dbid = (select oid from pg_database where datname = current_database())
              and query not like '%pg_stat_statements%'"""
    ).fetchone()
    assert row is not None
    return int(row[0])


def add_jobs(connection: Connection, kind: Kind, count: int, *, schedule: str) -> None:
    connection.execute(
        """insert into pgcron.jobs (name, schedule, timezone, kind, command, args)
           select 'job-' || g, %s, 'UTC', %s, %s, %s::jsonb from generate_series(1, %s) g""",
        (schedule, *kind, count),
    )
    if schedule == "@manual":
        connection.execute("update pgcron.jobs set planned = true, next_run_at = null")


@contextmanager
def database(server: Server, *, migrate: bool = True) -> Iterator[tuple[str, Connection]]:
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute("create database bench")
        try:
            if migrate:
                migrate_database(server.dsn("bench"))
            with psycopg.connect(server.dsn("bench"), autocommit=True) as connection:
                yield server.dsn("bench"), connection
        finally:
            admin.execute("drop database bench with (force)")


@contextmanager
def running_workers(dsn: str, count: int, *, slots: int) -> Iterator[None]:
    command = [sys.executable, "-m", "pgcron_runner", "worker", "--dsn", dsn, "--slots", str(slots)]
    workers = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


def wait_until(connection: Connection, query: str) -> None:
    while not connection.execute(query.encode()).fetchone()[0]:  # type: ignore[index]
        time.sleep(0.05)


if __name__ == "__main__":
    main()
