"""`python -m tests.faults.sql_kills [--trials 300] [--seed 7]`: do a SQL job's work and its record ever disagree?

A real worker runs jobs whose work is three rows, and whose commit takes a while. At a random point of each the client,
its server process or the whole server is killed, with synchronous_commit on and off. Before and after each kill and in
the end every run is looked at: three rows and `succeeded`, or no row and anything else. With synchronous_commit off a
crash of the server may take both back, and the run is done again; it must never take one of them. Exit code 1 where
they disagree.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from pgcron_runner.embedded import Server, start_temporary
from pgcron_runner.migrate import migrate_database
from tests.support.databases import Database, new_database
from tests.support.folders import quick_folder
from tests.support.waiting import eventually
from tests.support.workers import WorkerProcess

PATIENCE = 60.0
ROW = "insert into public.work values (current_setting('pgcron.run_id')::bigint); select pg_sleep(0.005);"
SETTINGS = {"listen_addresses": "''", "wal_writer_delay": "1s", "autovacuum": "off"}
SCHEMA = """
    create table public.work (run_id bigint);
    create function public.linger() returns trigger language plpgsql as
        $$begin perform pg_sleep(0.005); return null; end$$;
    create constraint trigger linger after insert on public.work deferrable initially deferred
        for each row execute function public.linger()"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one run: how many rows of work there are, and what its row says.

    `taken_back`: how many runs that had been done before the kill were not any more after it.
    """

    cause: str
    commit: str
    rows: int
    status: str
    taken_back: int = 0

    @property
    def is_done(self) -> bool:
        return (self.rows, self.status) == (3, "succeeded")

    @property
    def is_undone(self) -> bool:
        return self.rows == 0 and self.status != "succeeded"

    @property
    def disagrees(self) -> bool:
        return not self.is_done and not self.is_undone


class Ring:
    """One database, the worker that is beaten, and one beside it that runs nothing and buries the dead."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self._folder = folder
        self.torn: list[tuple[int, int]] = []
        self._names = itertools.count(1)
        self._stack = ExitStack()
        self._spare: WorkerProcess | None = None
        self._worker = self._start("default")
        self._start("nobody")
        self._numbers = itertools.count(1)

    def __enter__(self) -> Ring:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def server(self) -> Server:
        return self.database.server

    def _start(self, queue: str) -> WorkerProcess:
        options = ("--queues", queue, "--lease", "2s", "--poll", "500ms", "--slots", "1")
        name = f"worker-{next(self._names)}"
        return self._stack.enter_context(WorkerProcess(self.database.dsn, *options, folder=self._folder, name=name))

    def begin(self) -> int:
        """A run that a worker has begun; its id."""
        name = f"trial-{next(self._numbers)}"
        # Who asks for the run must not forget it.
        self.database.execute("set synchronous_commit = on")
        self.database.execute(
            "insert into pgcron.jobs (name, kind, command, schedule, timezone)"
            " values (%s, 'sql', %s, '@manual', 'UTC')",
            (name, ROW * 3),
        )
        run_id = int(
            self.database.value(
                "insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, max_running)"
                " select id, name, kind, 'manual', now(), now(), 1 from pgcron.jobs where name = %s returning id",
                (name,),
            )
        )
        began = "select status <> 'queued' from pgcron.runs where id = %s"
        eventually(lambda: self.database.value(began, (run_id,)), PATIENCE, message="the run begins")
        return run_id

    def seconds_of_a_run(self) -> float:
        """How long one takes that nobody kills."""
        run_id, began = self.begin(), time.monotonic()
        over = "select finished_at is not null from pgcron.runs where id = %s"
        eventually(lambda: self.database.value(over, (run_id,)), PATIENCE, message="the run ends")
        return time.monotonic() - began

    def job_pid(self) -> int | None:
        """The server process whose transaction holds a job's lock."""
        pid: int | None = self.database.value(
            "select pid from pg_locks where locktype = 'advisory' and objsubid = 1 and classid = 'pgcron'::regnamespace"
        )
        return pid

    def done(self) -> set[int]:
        """The runs that are done at this moment. Adds to `torn` what is half done: work and record disagree."""
        found = self.database.rows(
            "select r.id, r.status = 'succeeded', count(w.run_id) from pgcron.runs r"
            " left join public.work w on w.run_id = r.id group by r.id, r.status"
        )
        self.torn += [(run_id, rows) for run_id, recorded, rows in found if rows != (3 if recorded else 0)]
        return {run_id for run_id, recorded, _ in found if recorded}

    def kill_worker(self) -> None:
        self._worker.kill()
        self._worker = self._start("default")

    def wait_for_crash(self) -> None:
        """Until the server has noticed it, and ended the session that was looking on."""

        def is_over() -> bool:
            try:
                self.database.value("select true")
            except psycopg.OperationalError:
                return True
            return False

        eventually(is_over, PATIENCE, message="the server has crashed")

    def reconnect(self) -> None:
        self.database.close()

        def answers() -> bool:
            with suppress(psycopg.OperationalError):
                return bool(self.database.value("select true"))
            self.database.close()
            return False

        eventually(answers, PATIENCE, message="the server answers")


def kill_client(ring: Ring) -> bool:
    ring.kill_worker()
    return True


def end_backend(ring: Ring) -> bool:
    pid = ring.job_pid()
    if pid is None:
        return False
    ring.database.execute("select pg_terminate_backend(%s)", (pid,))
    return True


def kill_backend(ring: Ring) -> bool:
    """The server takes that for a crash, and starts anew."""
    pid = ring.job_pid()
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    ring.wait_for_crash()
    ring.reconnect()
    return True


def crash_server(ring: Ring) -> bool:
    ring.server.restart("immediate")
    ring.reconnect()
    return True


CAUSES: dict[str, Callable[[Ring], bool]] = {
    "kill -9 of the worker": kill_client,
    "pg_terminate_backend": end_backend,
    "kill -9 of the backend": kill_backend,
    "immediate restart": crash_server,
}


def run_trials(server: Server, *, commit: str, trials: int, chance: random.Random) -> list[Verdict]:
    """So many trials in one database with this synchronous_commit, each cause in its turn."""
    with new_database(server) as database, tempfile.TemporaryDirectory() as folder:
        migrate_database(database.dsn)
        database.execute(SCHEMA)
        database.execute(f"alter database {database.name} set synchronous_commit = {commit}")
        database.close()
        with Ring(database, Path(folder)) as ring:
            seconds = statistics.median(ring.seconds_of_a_run() for _ in range(5))
            causes = itertools.islice(itertools.cycle(CAUSES), trials)
            beaten = [(cause, *run_trial(ring, CAUSES[cause], chance, 1.2 * seconds)) for cause in causes]
            found = list(verdicts(ring, beaten, commit))
            assert ring.torn == [], "at some moment work and record did not agree"
            return found


def run_trial(ring: Ring, cause: Callable[[Ring], bool], chance: random.Random, longest: float) -> tuple[int, int]:
    """One run, and at a random point of it one kill; tried again where there was nothing left to kill.

    The run, and how many others were taken back.
    """
    while True:
        run_id = ring.begin()
        # Anew each time: a machine that is faster than when `longest` was measured is done before a late point.
        time.sleep(chance.uniform(0, longest))
        before = ring.done()
        if cause(ring):
            return run_id, len(before - ring.done())


def verdicts(ring: Ring, beaten: list[tuple[str, int, int]], commit: str) -> Iterator[Verdict]:
    """What became of them, once nothing is on its way any more."""
    database = ring.database
    over = "select not exists (select from pgcron.runs where status in ('queued', 'running'))"
    eventually(lambda: database.value(over), PATIENCE, message="every run has ended")
    ring.done()
    for cause, run_id, taken_back in beaten:
        look = "select (select count(*) from work w where w.run_id = r.id), r.status from pgcron.runs r where r.id = %s"
        [(rows, status)] = database.rows(look, (run_id,)) or [(-1, "gone")]
        yield Verdict(cause, commit, rows, status, taken_back)


@contextmanager
def own_server() -> Iterator[Server]:
    with start_temporary(settings=SETTINGS, folder=quick_folder()) as server:
        yield server


def table(found: list[Verdict]) -> str:
    """A line for each cause and mode."""
    lines = [line("cause", "synchronous_commit", "trials", "done", "neither", "disagreements", "taken back")]
    for cause, commit in itertools.product(CAUSES, ("on", "off")):
        some = [verdict for verdict in found if (verdict.cause, verdict.commit) == (cause, commit)]
        lines.append(line(cause, commit, *counts(some)))
    return "\n".join([*lines, line("all", "", *counts(found))])


def counts(some: list[Verdict]) -> tuple[int, ...]:
    done, neither = sum(v.is_done for v in some), sum(v.is_undone for v in some)
    return len(some), done, neither, len(some) - done - neither, sum(v.taken_back for v in some)


def line(cause: str, commit: str, *figures: object) -> str:
    return f"{cause:<24}{commit:<20}" + "".join(f"{figure:>15}" for figure in figures)


def main() -> int:
    """All trials, and their table."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.sql_kills", description=__doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    chance, found = random.Random(given.seed), []
    for commit in ("on", "off"):
        with own_server() as server:
            found += run_trials(server, commit=commit, trials=given.trials // 2, chance=chance)
    print(table(found))
    for verdict in found:
        if verdict.disagrees:
            print(verdict)
    return 1 if any(verdict.disagrees for verdict in found) else 0


if __name__ == "__main__":
    sys.exit(main())
