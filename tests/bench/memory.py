"""`python -m tests.bench.memory [--runs 10000] [--gigabytes 5]`: what a worker weighs after many runs and a big one.

One real worker on a fresh server: so many shell runs of /bin/true, then one run that prints so much. Printed is what
the worker and its guard have resident before and after, and the most they ever had.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from pgcron_runner.embedded import start_temporary
from tests.bench.__main__ import TRUE, Connection, add_jobs, database, wait_until
from tests.faults.processes import descendants
from tests.support.workers import WorkerProcess

SLOTS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--gigabytes", type=float, default=5)
    options = parser.parse_args()
    with (
        start_temporary(settings={"fsync": "off", "max_wal_size": "4GB"}) as server,
        database(server) as (dsn, connection),
        tempfile.TemporaryDirectory() as folder,
        WorkerProcess(dsn, "--slots", str(SLOTS), folder=Path(folder)) as worker,
    ):
        pid = worker.pid
        print(f"Python {sys.version.split()[0]}, {SLOTS} slots")
        add_jobs(connection, TRUE, SLOTS, schedule="@manual")
        run_true(connection, 200)
        show("after 200 runs", pid)
        for _ in range(5):
            began = time.monotonic()
            run_true(connection, options.runs // 5)
            rate = options.runs / 5 / (time.monotonic() - began)
            show(f"{options.runs // 5:,} runs more, {rate:,.0f}/s", pid)
        began = time.monotonic()
        size = round(options.gigabytes * 1e9)
        total = print_much(connection, size)
        seconds = time.monotonic() - began
        show(f"one that printed {total / 1e9:.1f} GB, {total / seconds / 1e6:.0f} MB/s", pid)


def run_true(connection: Connection, count: int) -> None:
    connection.execute(
        """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, max_running)
           select id, name, kind, 'manual', now() + g * interval '1 us', now(), 1
             from generate_series(1, %s) g join pgcron.jobs on name = 'job-' || (g %% %s + 1)""",
        (count, SLOTS),
    )
    wait_until(connection, "select not exists (select from pgcron.runs where status in ('queued', 'running'))")
    row = connection.execute("select count(*) from pgcron.runs where status <> 'succeeded'").fetchone()
    assert row == (0,), "each has succeeded"


def print_much(connection: Connection, size: int) -> int:
    """How many bytes its row counts."""
    connection.execute(
        """insert into pgcron.jobs (name, schedule, timezone, kind, command, planned)
           values ('loud', '@manual', 'UTC', 'shell', %s, true)""",
        (f"yes 'a line of output that nobody will ever read' | head -c {size}",),
    )
    connection.execute(
        """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, max_running)
           select id, name, kind, 'manual', now(), now(), 1 from pgcron.jobs where name = 'loud'"""
    )
    wait_until(connection, "select not exists (select from pgcron.runs where status in ('queued', 'running'))")
    row = connection.execute("select status, output_bytes from pgcron.runs where job_name = 'loud'").fetchone()
    assert row is not None
    assert row[0] == "succeeded", row
    return int(row[1])


def show(label: str, pid: int) -> None:
    guard = next(process.pid for process in descendants(pid) if "/guard " in process.command)
    figures = [f"{name} {resident(pid):4} MB (most {peak(pid):4})" for name, pid in (("worker", pid), ("guard", guard))]
    print(f"{label:45} {'   '.join(figures)}", flush=True)


def resident(pid: int) -> int:
    return _megabytes(pid, "VmRSS")


def peak(pid: int) -> int:
    return _megabytes(pid, "VmHWM")


def _megabytes(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(name))) // 1024


if __name__ == "__main__":
    main()
