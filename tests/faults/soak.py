"""`python -m tests.faults.soak --minutes 30 --rate 300`: so many runs a second with a fault every 20 seconds.

Prints a line every half minute: lateness, memory of workers and server, sizes and dead rows. All of it should be flat.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg

from pgcron_runner.migrate import migrate_database
from tests.faults.programme.hosts import Host, Resurrection
from tests.faults.programme.jobs import SCHEMA
from tests.faults.programme.nodes import Cluster, children, home_for_servers
from tests.faults.programme.play import tidy_up_on_term
from tests.faults.programme.tools import build_mark

_FAULT_EVERY = 20.0
_LINE_EVERY = 30.0
_HEAD = "   time  runs/s   late p50/p99/most ms  workers MB  guards MB  server MB   runs rows      MB   dead  faults"
_LATENESS = """
select count(*), percentile_cont(array[0.5, 0.99, 1]) within group
       (order by extract(epoch from started_at - run_at)::float8 * 1000)
  from pgcron.runs
 where trigger = 'schedule' and run_at between clock_timestamp() - interval '30 seconds' and clock_timestamp()
   and started_at is not null
"""
_SIZES = """
select (select count(*) from pgcron.runs), pg_total_relation_size('pgcron.runs'),
       (select sum(n_dead_tup) from pg_stat_user_tables where schemaname = 'pgcron')
"""


def main() -> int:
    """Prints the table; exit code 1 where runs are left, doubled or unaccounted for at the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--rate", type=int, default=300, help="runs a second")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--server", type=Path, help="the bin folder of another Postgres")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    tidy_up_on_term()
    chance = random.Random(given.seed)
    with ExitStack() as stack:
        home, _ = stack.enter_context(home_for_servers())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgcron-soak-")))
        cluster = Cluster(home, bin_dir=given.server, namespace=None, clock=None, synchronous=False)
        stack.callback(cluster.stop)
        cluster.create()
        hosts = _start(stack, cluster, home, folder, given)
        resurrection = Resurrection(hosts, chance)
        resurrection.start()
        stack.callback(resurrection.end)
        print(_HEAD, flush=True)
        for line in _lines(cluster, hosts, chance, given.minutes * 60):
            print(line, flush=True)
        return _verdict(cluster)


def _start(stack: ExitStack, cluster: Cluster, home: Path, folder: Path, given: argparse.Namespace) -> list[Host]:
    with cluster.primary.connect("postgres") as connection:
        connection.execute("create database app")
    migrate_database(cluster.primary.dsn("app"))
    with cluster.primary.connect() as connection:
        connection.execute(SCHEMA)
        # Most are SQL, as cheap as can be; a few are commands. What went well goes after an hour.
        connection.execute(
            "insert into pgcron.jobs (name, kind, command, schedule, timezone, history, max_attempts, env_from)"
            " select 'soak-' || n, case when n %% 50 = 0 then 'shell' else 'sql' end,"
            " case when n %% 50 = 0 then %s else 'select 1' end, '@every 1s', 'UTC', 'failures', 2, '{TRUTH}'"
            " from generate_series(1, %s) as n",
            [f"exec {build_mark(folder)} 0.05 0", given.rate],
        )
    hosts = []
    for number in range(1, given.workers + 1):
        host = Host(
            number,
            folder,
            cable=None,
            sockets={5501: f"{home}/.s.PGSQL.5501", 5502: f"{home}/.s.PGSQL.5502"},
            clock=None,
            mutant=None,
            options=("--lease", "10s", "--slots", "40"),
        )
        for proxy in host.proxies:
            stack.enter_context(proxy)
        host.start()
        stack.callback(host.stop)
        hosts.append(host)
    return hosts


def _lines(cluster: Cluster, hosts: list[Host], chance: random.Random, seconds: float) -> Iterator[str]:
    began = time.monotonic()
    next_fault, next_line, faults = began + _FAULT_EVERY, began + _LINE_EVERY, 0
    while (now := time.monotonic()) - began < seconds:
        if now >= next_fault:
            next_fault += _FAULT_EVERY
            faults += 1
            _fault(cluster, hosts, chance)
        if now >= next_line:
            next_line += _LINE_EVERY
            yield _line(cluster, hosts, now - began, faults)
        time.sleep(0.2)


def _fault(cluster: Cluster, hosts: list[Host], chance: random.Random) -> None:
    host = chance.choice(hosts)
    match chance.choice(["kill", "freeze", "cut", "sessions", "restart"]):
        case "kill":
            host.signal(signal.SIGKILL)
        case "freeze":
            pids = host.freeze()
            time.sleep(chance.uniform(1, 12))
            host.thaw(pids)
        case "cut":
            for proxy in host.proxies:
                proxy.cut()
            time.sleep(chance.uniform(0, 5))
            for proxy in host.proxies:
                proxy.resume()
        case "sessions":
            with cluster.primary.connect() as connection:
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'pgcron %'"
                )
        case "restart":
            cluster.primary.restart("fast")


def _line(cluster: Cluster, hosts: list[Host], passed: float, faults: int) -> str:
    with cluster.primary.connect() as connection:
        count, lateness = _row(connection, _LATENESS)
        rows, size, dead = _row(connection, _SIZES)
    late = "/".join(f"{value:.0f}" for value in lateness or [])
    workers = [host.popen.pid for host in hosts if host.popen is not None]
    guards = [guard.pid for host in hosts if (guard := host.guard()) is not None]
    return (
        f"{passed:7.0f} {count / 30:7.0f} {late:>22} {_mb(workers):11.0f} {_mb(guards):10.0f}"
        f" {_mb(_server(cluster)):10.0f} {rows:11} {size / 1e6:7.0f} {dead or 0:6} {faults:7}"
    )


def _row(connection: psycopg.Connection, statement: str) -> tuple:  # type: ignore[type-arg]
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return row


def _server(cluster: Cluster) -> list[int]:
    return [pid for pid in [cluster.primary.pid, *children(cluster.primary)] if pid is not None]


def _mb(pids: list[int]) -> float:
    """Their share of memory: what they have for themselves, and their part of what is shared."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1000


def _verdict(cluster: Cluster) -> int:
    with cluster.primary.connect() as connection:
        connection.execute("update pgcron.jobs set enabled = false")
        time.sleep(20)
        (left,) = _row(connection, "select count(*) from pgcron.runs where status in ('queued', 'running')")
        (states,) = _row(
            connection,
            "select string_agg(n || ' ' || status, ', ' order by n desc) from (select count(*) as n, status from"
            " pgcron.runs group by status) as counted",
        )
    print(f"rows at the end: {states}; left queued or running: {left}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
