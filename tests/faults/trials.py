"""`python -m tests.faults.trials [--trials 50]`: how long what a job has started outlives its worker's lease.

Real workers with a lease of two seconds run a job that starts descendants of every kind that is hard to kill. Each
trial takes the worker away in one way, and looks through /proc for processes with the job's marker until there is none.
Counted is from the kill, or, where the worker loses its lease, from the lease's end: its last heartbeat, as written in
its row, and two seconds. Then others may start the job again; what is negative was dead before.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from pgcron_runner.embedded import Server, start_temporary
from pgcron_runner.migrate import migrate_database
from tests.execution.escapes import ESCAPES, STORM
from tests.faults.processes import descendants, marked
from tests.support.databases import Database, create_worker_role, new_database
from tests.support.folders import quick_folder
from tests.support.proxy import Proxy
from tests.support.waiting import eventually
from tests.support.workers import WorkerProcess

LEASE = 2.0
PROMISE = 1.0
PATIENCE = 60.0
# One that forks and ends all the time may be between two lives when one looks.
_SURELY_DEAD = 0.3
_GIVE_UP = 15.0


@dataclass(frozen=True, slots=True)
class Trial:
    """`seconds`: from the kill, or the end of the lease, to the last sight of a process; `left` are still alive."""

    started: int
    seconds: float
    left: int

    @property
    def kept(self) -> bool:
        return not self.left and self.seconds <= PROMISE


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Attempt:
    """One worker that runs the job, and a line to the database that can be cut."""

    def __init__(self, database: Database, proxy: Proxy, folder: Path) -> None:
        self.proxy = proxy
        self.marker = f"0.{uuid.uuid4().int}"
        self._queue = f"q{uuid.uuid4().hex[:8]}"
        self._connection = psycopg.connect(database.dsn, autocommit=True)
        self._add_run()
        arguments = ("--queues", self._queue, "--lease", f"{LEASE:g}s", "--poll", "1s", "--name", self._queue)
        self.worker = WorkerProcess(database.dsn_through(proxy.port), *arguments, folder=folder, name=self._queue)

    def _add_run(self) -> None:
        self._connection.execute(
            "insert into pgcron.jobs (name, queue, kind, command, schedule, timezone, max_attempts)"
            " values (%(queue)s, %(queue)s, 'shell', %(command)s, '@manual', 'UTC', 1)",
            {"queue": self._queue, "command": command(self.marker)},
        )
        self._connection.execute(
            "insert into pgcron.runs (job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at,"
            " max_running) select id, name, kind, queue, priority, 'manual', now(), now(), 1 from pgcron.jobs"
            " where name = %s",
            [self._queue],
        )

    def wait_until_up(self) -> int:
        """Until the job has started all its descendants; how many there are. 0: the run was lost before the fault."""

        def is_up() -> int:
            return len(marked(self.marker)) if len(marked(self.marker)) > len(ESCAPES) else 0

        eventually(lambda: is_up() or self._is_lost(), PATIENCE, message="the job has started them all")
        return 0 if self._is_lost() else is_up()

    def _is_lost(self) -> bool:
        # A lease of two seconds is short for a machine that has other things to do.
        query = "select status not in ('queued', 'running') from pgcron.runs where job_name = %s"
        return self._connection.execute(query, [self._queue]).fetchone() == (True,)

    @property
    def guard_pid(self) -> int:
        return next(p.pid for p in descendants(self.worker.pid) if "/guard " in p.command)

    def lease_end(self) -> float:
        """By the row that others look at, on the boot-time clock."""
        row = self._connection.execute(
            "select extract(epoch from heartbeat_at)::float8 from pgcron.workers where name = %s", [self._queue]
        ).fetchone()
        assert row is not None
        return float(row[0]) + LEASE - time.time() + boottime()

    def close(self) -> None:
        self.proxy.resume()
        if self.worker.returncode is None:
            self.worker.kill()
        for process in marked(self.marker):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self._connection.close()


Cause = Callable[[Attempt], Callable[[], float]]
"""Takes the worker away; what is returned tells from when on nothing may live, once it is over."""


def kill_worker(attempt: Attempt) -> Callable[[], float]:
    os.kill(attempt.worker.pid, signal.SIGKILL)
    now = boottime()
    return lambda: now


def kill_guard(attempt: Attempt) -> Callable[[], float]:
    guard = attempt.guard_pid
    os.kill(guard, signal.SIGKILL)
    now = boottime()
    return lambda: now


def stop_worker(attempt: Attempt) -> Callable[[], float]:
    attempt.worker.stop()
    return attempt.lease_end


def cut_line(attempt: Attempt) -> Callable[[], float]:
    attempt.proxy.cut()
    return attempt.lease_end


def stall_line(attempt: Attempt) -> Callable[[], float]:
    attempt.proxy.stall()
    return attempt.lease_end


CAUSES: dict[str, Cause] = {
    "kill -9 of the worker": kill_worker,
    "kill -9 of the guard": kill_guard,
    "worker stopped (SIGSTOP)": stop_worker,
    "connection reset": cut_line,
    "connection silent": stall_line,
}


def command(marker: str) -> str:
    """A shell script that starts processes with the marker in all ways that are hard to kill."""
    forms = [f"sh -c {shlex.quote(script.format(marker))} &" for script in ESCAPES.values()]
    storm = shlex.join([sys.executable, "-I", "-S", "-c", STORM, marker])
    return " ".join([*forms, f"env -i {storm} &", "wait"])


def run_trial(database: Database, cause: Cause, folder: Path) -> Trial:
    """One worker, one run, one fault; begun again where the run is lost before the fault."""
    with Proxy(("127.0.0.1", database.server.port)) as proxy:
        while True:
            attempt = Attempt(database, proxy, folder)
            try:
                if started := attempt.wait_until_up():
                    ends_at = cause(attempt)
                    last_seen = watch(attempt.marker)
                    return Trial(started, last_seen - ends_at(), len(marked(attempt.marker)))
            finally:
                attempt.close()


def watch(marker: str) -> float:
    """When the last process with this marker was seen."""
    began = last_seen = boottime()
    word = marker.encode()
    while (now := boottime()) < last_seen + _SURELY_DEAD and now < began + _GIVE_UP:
        if is_any_alive(word):
            last_seen = boottime()
        time.sleep(0.01)
    return last_seen


def is_any_alive(word: bytes) -> bool:
    """Whether any process has this among its arguments, as fast as that can be told; one that has ended has none."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as arguments:
                if word in arguments.read():
                    return True
    return False


def run_trials(server: Server, name: str, *, trials: int, lanes: int) -> list[Trial]:
    """So many trials of one cause, some at a time."""
    with (
        new_database(server) as database,
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(lanes) as pool,
    ):
        migrate_database(database.dsn)
        return list(pool.map(lambda _: run_trial(database, CAUSES[name], Path(folder)), range(trials)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=50, help="of each cause")
    parser.add_argument("--lanes", type=int, default=4, help="workers at a time")
    parser.add_argument("--only", default="", metavar="WORDS", help="the causes with these words in their names")
    options = parser.parse_args()
    print(
        f"lease {LEASE:g} s; Python {sys.version.split()[0]}, {os.cpu_count()} cores, {options.lanes} trials at a time"
    )
    print(f"{'cause':26} {'trials':>6} {'processes':>9} {f'dead in {PROMISE:g} s':>11} {'median':>9} {'worst':>9}")
    broken = False
    with start_temporary(settings={"fsync": "off"}, listen=True, folder=quick_folder()) as server:
        create_worker_role(server)
        for name in (name for name in CAUSES if options.only in name):
            done = run_trials(server, name, trials=options.trials, lanes=options.lanes)
            kept = sum(trial.kept for trial in done)
            broken |= kept < len(done)
            print(
                f"{name:26} {len(done):6} {sum(t.started for t in done):9,} {kept:11}"
                f" {statistics.median(t.seconds for t in done):7.2f} s {max(t.seconds for t in done):7.2f} s",
                flush=True,
            )
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
