"""One database with jobs that write down the truth themselves, workers on it, and what can be read of both."""

from __future__ import annotations

import itertools
import json
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from tests.faults.checker import Clock, Edition, Effect, History, Job, Mark, Run, breaches
from tests.faults.processes import marked
from tests.support.databases import WORKER_ROLE, Database
from tests.support.waiting import eventually
from tests.support.workers import WorkerProcess

# A machine that is busy with other things may take this long for what takes a moment.
PATIENCE = 40.0

# begin, `alive` every 50 ms, end: one line each, with the run and the boot-time clock, in one file per job.
# It ends after so many rounds, or as soon as the gate is there.
_SCRIPT = """\
file=$1 rounds=$2 gate=$1.gate
say() { read -r now rest < /proc/uptime; echo "$1 $PGCRON_RUN_ID $now" >> "$file"; }
say begin
while [ "$rounds" -gt 0 ] && [ ! -e "$gate" ]; do sleep 0.05; rounds=$((rounds - 1)); say alive; done
say end
"""

_DEFAULTS: dict[str, Any] = {
    "schedule": "@manual",
    "queue": "default",
    "args": "{}",
    "timeout": timedelta(minutes=5),
    "kill_grace": timedelta(seconds=1),
    "max_attempts": 2,
    "retry_delay": timedelta(0),
    "overlap": "skip",
    "ends_at": None,
}
WORK = (
    "insert into truth.effects select current_setting('pgcron.run_id')::bigint,"
    " current_setting('pgcron.scheduled_for')::timestamptz, clock_timestamp()"
)


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Worker(WorkerProcess):
    """A worker process that logs JSON, and what it has said."""

    def events(self, name: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """Its log lines of this event, or all, oldest first; what is no JSON is an event `text`."""
        found = [_parsed(line) for line in self.log().splitlines()]
        return [
            event
            for event in found
            if (name is None or event["event"] == name) and all(event.get(key) == fields[key] for key in fields)
        ]

    @property
    def dropped(self) -> Counter[int]:
        """The runs whose late result it says it has dropped, each as often as it says so."""
        return Counter(event["run"] for event in self.events("result_dropped"))

    @property
    def ids(self) -> list[str]:
        """The ids of its tenures, oldest first."""
        return [event["worker"] for event in self.events("worker_started")]


def _parsed(line: str) -> dict[str, Any]:
    if not line.startswith("{"):
        return {"event": "text", "text": line}
    parsed: dict[str, Any] = json.loads(line)
    return parsed


class Stage:
    """A database, a folder and workers. Leaving it kills the workers that still run."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self._script = folder / "work.sh"
        self._script.write_text(_SCRIPT)
        self._names = itertools.count(1)
        self._workers = ExitStack()
        database.execute("create schema truth")
        database.execute("create table truth.effects (run_id bigint, nominal timestamptz, at timestamptz)")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.close()
        # Shown where a test fails.
        for log in sorted(self.folder.glob("worker-*.log")):
            print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-40:], sep="\n")

    # Workers.

    def start(self, *arguments: str, lease: str = "4s", poll: str = "1s", dsn: str | None = None, **env: str) -> Worker:
        """A worker process, not waited for."""
        options = ("--log-json", "--lease", lease, "--poll", poll, *arguments)
        name = f"worker-{next(self._names)}"
        return self._workers.enter_context(
            Worker(dsn or self.database.dsn, *options, folder=self.folder, name=name, env=env)
        )

    def ready(self, *arguments: str, **options: Any) -> Worker:
        """A worker that has registered."""
        worker = self.start(*arguments, **options)
        eventually(lambda: worker.ids, PATIENCE, message="the worker registers")
        return worker

    # Jobs.

    def add_job(self, name: str, kind: str, command: str, **columns: Any) -> None:
        """Inserts a job; two attempts without a pause, and no schedule, unless it is told otherwise."""
        values = _DEFAULTS | columns | {"name": name, "kind": kind, "command": command}
        self.database.execute(
            "insert into pgcron.jobs (name, kind, command, schedule, timezone, queue, args, timeout, kill_grace,"
            " max_attempts, retry_delay, overlap, ends_at) values (%(name)s, %(kind)s, %(command)s, %(schedule)s,"
            " 'UTC', %(queue)s, %(args)s, %(timeout)s, %(kill_grace)s, %(max_attempts)s, %(retry_delay)s, %(overlap)s,"
            " %(ends_at)s)",
            values,
        )

    def add_shell(self, name: str, *, seconds: float = 300, before: str = "", **columns: Any) -> None:
        """A command that writes down what it does, until its time is over or its gate is opened."""
        rounds = round(seconds / 0.05)
        command = f"{before} sh {shlex.quote(str(self._script))} {shlex.quote(str(self._marks(name)))} {rounds}"
        self.add_job(name, "shell", command, **columns)

    def add_sql(self, name: str, *, seconds: float = 0, **columns: Any) -> None:
        """Inserts its run into truth.effects, and then takes its time."""
        self.add_job(name, "sql", f"{WORK}; select pg_sleep({seconds})" if seconds else WORK, **columns)

    def open_gate(self, name: str) -> None:
        """Lets the runs of a shell job come to their end, now and later."""
        Path(f"{self._marks(name)}.gate").touch()

    def run_now(self, name: str) -> int:
        """Queues a run; its id."""
        return int(
            self.database.value(
                "insert into pgcron.runs (job_id, job_name, kind, queue, priority, trigger, scheduled_for, run_at,"
                " max_running) select id, name, kind, queue, priority, 'manual', now(), now(), 1 from pgcron.jobs"
                " where name = %s returning id",
                [name],
            )
        )

    def _marks(self, name: str) -> Path:
        return self.folder / f"{name}.marks"

    # What can be seen.

    def runs(self, job: str | None = None) -> list[Run]:
        """The rows of one job or all, in the order of their making."""
        rows = self.database.rows(
            "select id, job_name, kind, trigger, scheduled_for, run_at, attempt, status, worker_id::text, started_at,"
            " finished_at, reason, missed_count, missed_until from pgcron.runs"
            " where job_name = %(job)s or %(job)s::text is null order by id",
            {"job": job},
        )
        return [Run(*row) for row in rows]

    def run(self, run_id: int) -> Run:
        return next(run for run in self.runs() if run.id == run_id)

    def marks(self, job: str) -> list[Mark]:
        """What the runs of a shell job have written down."""
        if not (path := self._marks(job)).exists():
            return []
        lines = [line.split() for line in path.read_text().splitlines()]
        return [Mark(job, int(run_id), word, float(at)) for word, run_id, at in lines]

    def begun(self, job: str) -> list[int]:
        """The runs whose command has begun, by its own word."""
        return [mark.run_id for mark in self.marks(job) if mark.word == "begin"]

    def job_lock_pids(self, job: str) -> list[int]:
        """Who holds the lock of a job, by pg_locks."""
        rows = self.database.rows(
            "select l.pid from pg_locks l join pgcron.jobs j on l.objid = j.id where j.name = %s"
            " and l.locktype = 'advisory' and l.objsubid = 2 and l.granted and l.classid = 'pgcron'::regnamespace"
            " and l.database = (select oid from pg_database where datname = current_database())",
            [job],
        )
        return [pid for (pid,) in rows]

    def sessions(self, worker: Worker, like: str = "%") -> list[int]:
        """Backends of a worker whose last statement looks like this, oldest first."""
        rows = self.database.rows(
            "select pid from pg_stat_activity where application_name = %s and query ilike %s order by backend_start",
            [f"pgcron {worker.ids[-1]}", like],
        )
        return [pid for (pid,) in rows]

    def terminate(self, pid: int) -> None:
        """Ends a session, and waits until it is gone."""
        assert self.database.value("select pg_terminate_backend(%s, 10000)", [pid])

    def ordinary_dsn(self) -> str:
        """For a worker as an ordinary role, with the rights it needs and no other."""
        self.database.execute(
            f"grant usage on schema pgcron, truth to {WORKER_ROLE};"
            f" grant select, insert, update, delete on all tables in schema pgcron, truth to {WORKER_ROLE};"
            f" grant usage on all sequences in schema pgcron to {WORKER_ROLE};"
            f" grant execute on all functions in schema pgcron to {WORKER_ROLE}"
        )
        return self.database.worker_dsn

    def reconnect(self) -> None:
        """After the server was away: waits until it takes connections, and forgets the old one."""
        self.database.close()

        def answers() -> bool:
            with suppress(psycopg.OperationalError):
                return bool(self.database.value("select true"))
            return False

        eventually(answers, PATIENCE, message="the server answers")

    # Waiting, and the verdict.

    def wait_for(self, check: Callable[[], Any], message: str = "", timeout: float = PATIENCE) -> Any:
        return eventually(check, timeout, message=message)

    def wait_status(self, run_id: int, *statuses: str, timeout: float = PATIENCE) -> Run:
        """The row as soon as it has one of these states."""
        message = f"run {run_id} is {' or '.join(statuses)}"
        return eventually(lambda: self._found(statuses, run_id=run_id), timeout, message=message)[-1]

    def wait_attempt(self, job: str, attempt: int, *statuses: str) -> Run:
        """The newest row of this attempt as soon as it has one of these states."""
        message = f"attempt {attempt} of {job} is {' or '.join(statuses)}"
        return eventually(lambda: self._found(statuses, job=job, attempt=attempt), PATIENCE, message=message)[-1]

    def _found(
        self, statuses: Iterable[str], *, run_id: int = 0, job: str | None = None, attempt: int = 0
    ) -> list[Run]:
        return [
            run
            for run in self.runs(job)
            if run.status in statuses and run_id in (0, run.id) and attempt in (0, run.attempt)
        ]

    def wait_begun(self, job: str, run_id: int) -> None:
        eventually(lambda: run_id in self.begun(job), PATIENCE, message=f"the command of run {run_id} begins")

    def wait_quiet(self) -> None:
        """Until nothing is running and nothing waits that is due, and no scheduled job has a time left."""
        eventually(
            lambda: self.database.value(
                "select not exists (select from pgcron.runs where status in ('queued', 'running'))"
                " and not exists (select from pgcron.jobs where enabled and next_run_at is not null)"
            ),
            PATIENCE,
            message="all is done",
        )

    def check(self, *, unrecorded: bool = False, settled: bool = True) -> History:
        """Asserts that no promise was broken; with `settled`, that nothing is held or running any more."""
        if settled:
            self._wait_for_locks()
        history = replace(self.history(settled=settled), unrecorded=unrecorded)
        assert [str(breach) for breach in breaches(history)] == []
        return history

    def history(self, *, settled: bool = True) -> History:
        (now,) = self.database.rows("select clock_timestamp()")[0]
        jobs = self.database.rows(
            "select name, schedule, timezone, anchored_at, next_run_at, ends_at, max_attempts,"
            " case when overlap = 'allow' then max_running else 1 end"
            " from pgcron.jobs order by name"
        )
        runs = self.runs()
        effects = self.database.rows("select run_id, nominal, at from truth.effects")
        return History(
            jobs=[_job(*row) for row in jobs],
            runs=runs,
            now=now,
            clock=Clock(((0.0, _booted_at(now), True),)),
            marks=[mark for job in sorted({run.job for run in runs}) for mark in self.marks(job)],
            effects=[Effect(*row) for row in effects],
            locks=self._locks() if settled else [],
            processes=[process.command for process in marked(str(self._script))] if settled else [],
        )

    def _locks(self) -> list[str]:
        rows = self.database.rows(
            "select mode, classid, objid, pid from pg_locks where locktype = 'advisory'"
            " and database = (select oid from pg_database where datname = current_database())"
        )
        return [f"{mode} on ({space}, {key}) of backend {pid}" for mode, space, key, pid in rows]

    def _wait_for_locks(self) -> None:
        # A lock is given back a moment after the row is final.
        eventually(lambda: not self._locks(), PATIENCE, message="the locks are given back")


def _job(
    name: str,
    schedule: str,
    timezone: str,
    anchored_at: datetime,
    next_run_at: datetime | None,
    ends_at: datetime | None,
    max_attempts: int,
    max_running: int | None,
) -> Job:
    # A job of which nothing is planned any more and that has no end never had a time, such as a manual one.
    bounded = next_run_at is not None or ends_at is not None or schedule.startswith("@at ")
    edition = Edition(schedule if bounded else None, timezone, anchored_at, next_run_at, ends_at)
    return Job(name, (edition,), max_attempts, max_running)


def _booted_at(now: datetime) -> datetime:
    # The server runs on this machine; the test process' own clock is the same, but a moment later.
    return now - timedelta(seconds=boottime())
