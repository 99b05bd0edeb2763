"""`python -m tests.bench.alerts`: what incidents and alerts cost the runs, in ratios of one run on one machine.

2,000 runs of 1,000 jobs, python no-ops in one worker: failing ones with no channel, one, and three with two routes
each; and succeeding ones that close 1,000 incidents. The channels cannot be reached: the run path is what is measured.
"""

from __future__ import annotations

from typing import Any

from pgcron_runner.embedded import Server, start_temporary
from tests.bench.__main__ import PYTHON, SETTINGS, Connection, add_jobs, database, running_workers, wait_until

_FAILING = ("python", "tests.bench.alerts:fail", '{"isolation": "thread"}')
_JOBS = 1_000
_CASES: dict[bool, dict[str, dict[str, Any]]] = {
    True: {
        "no channel": {},
        "1 channel": {"channels": 1},
        "3 channels, 6 routes": {"channels": 3},
        "again, all told": {"channels": 3, "incidents": True},
    },
    False: {"nothing open": {}, "1,000 open incidents": {"channels": 3, "incidents": True}},
}
_IDLE = "select not exists (select from pgcron.runs where status in ('queued', 'running'))"


async def fail() -> None:
    """Fails."""
    raise ValueError("boom")


def main() -> None:
    with start_temporary(settings=SETTINGS) as server:
        for fails, cases in _CASES.items():
            base = measure(server, fails=fails, watched=False)
            verb = "failing" if fails else "succeeding"
            print(f"{verb + ', without incidents':38} {base:8,.0f} runs/s  1.00")
            for label, options in cases.items():
                rate = measure(server, fails=fails, **options)
                print(f"{verb + ', ' + label:38} {rate:8,.0f} runs/s  {rate / base:.2f}", flush=True)


def measure(server: Server, *, fails: bool, incidents: bool = False, channels: int = 0, watched: bool = True) -> float:
    """Runs a second from the first start to the last end."""
    with database(server) as (dsn, connection):
        add_jobs(connection, _FAILING if fails else PYTHON, _JOBS, schedule="@manual")
        add_channels(connection, channels)
        if incidents:
            queue(connection, 0)
            connection.execute("update pgcron.runs set status = 'failed', finished_at = now()")
            connection.execute("update pgcron.alerts set sent_at = now()")
        if not watched:
            connection.execute("alter table pgcron.runs disable trigger note_run")
        queue(connection, 1)
        queue(connection, 2)
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
        with running_workers(dsn, 1, slots=1000):
            wait_until(connection, _IDLE)
        row = connection.execute(
            "select count(*) / extract(epoch from max(finished_at) - min(started_at))::float8 from pgcron.runs"
            " where worker_id is not null"
        ).fetchone()
        assert row is not None
        return float(row[0])


def add_channels(connection: Connection, count: int) -> None:
    connection.execute(
        "insert into pgcron.channels (name, target)"
        " select 'channel-' || i, 'webhook+http://127.0.0.1:1/' from generate_series(1, %s) i",
        (count,),
    )
    if count > 1:
        connection.execute(
            "insert into pgcron.routes (channel_id, job_pattern, min_failures, repeat_every)"
            " select id, 'job-*', 1, null::interval from pgcron.channels"
            " union all select id, 'job-1*', 3, '1 hour' from pgcron.channels"
        )


def queue(connection: Connection, number: int) -> None:
    """A run of each job."""
    connection.execute(
        """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, max_running)
           select id, name, kind, 'manual', now() + make_interval(secs => %s), now(), 1 from pgcron.jobs""",
        (number,),
    )


if __name__ == "__main__":
    main()
