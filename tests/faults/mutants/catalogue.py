"""The mutants: what each breaks, how, and the faults that should bring it to light."""

from __future__ import annotations

import asyncio
import importlib
import math
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

Patch = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`only`: words of the kinds of faults. `rate`: how many a minute; few where others must look on in health."""

    name: str
    what: str
    patch: Patch
    only: tuple[str, ...]
    rate: float = 40.0


def sql(**changes: tuple[str, str]) -> Patch:
    """Other words in statements, before anybody has read them."""

    def patch() -> None:
        statements: Any = importlib.import_module("pgcron_runner.statements")
        real = statements.query

        def query(name: str) -> bytes:
            text: bytes = real(name)
            if name in changes:
                old, new = (words.encode() for words in changes[name])
                if old not in text:
                    raise LookupError(f"{name}.sql has changed: {old!r} is not in it any more")
                text = text.replace(old, new)
            return text

        statements.query = query

    return patch


def attribute(path: str, change: Callable[[Any], Any]) -> Patch:
    """Another thing in place of one of the program's: `module:name` or `module:Class.name`."""

    def patch() -> None:
        module, _, names = path.partition(":")
        owner: Any = importlib.import_module(f"pgcron_runner.{module}")
        *parents, last = names.split(".")
        for name in parents:
            owner = getattr(owner, name)
        setattr(owner, last, change(getattr(owner, last)))

    return patch


def all_of(*patches: Patch) -> Patch:
    def patch() -> None:
        for one in patches:
            one()

    return patch


def _deadline_from_the_answer(_: Any) -> Any:
    clock = importlib.import_module("pgcron_runner.clock")
    return lambda sent_at, lease: clock.boottime() + lease * 0.8


def _all_silent(_: Any) -> Any:
    watch = importlib.import_module("pgcron_runner.leases").Watch
    return lambda self, beats, now: (watch(self.own_lease, {}, now), list(beats))


def _unlocked(real: Any) -> Any:
    runs: Any = importlib.import_module("pgcron_runner.store.runs")

    async def step(self: Any, *arguments: Any, **named: Any) -> Any:
        claimed = await real(self, *arguments, **named)
        async with self._session.use() as connection:
            locks = [runs.LockedJob(task.job_id, task.exclusive) for task in claimed.tasks]
            await runs.release_job_locks(connection, locks)
        return claimed

    return step


def _for_ever(real: Any) -> Any:
    return lambda self, deadline: real(self, math.inf)


def _kept_open(real: Any) -> Any:
    """A stranger inherits the worker's end of the line to its guard: it does not close when the worker dies."""

    def start(*arguments: Any, **named: Any) -> Any:
        guard = real(*arguments, **named)
        fd = guard._mailbox.socket.fileno()
        subprocess.Popen(["sleep", "40"], pass_fds=(fd,), start_new_session=True)
        return guard

    return start


def _record_first(_: Any) -> Any:
    module: Any = importlib.import_module("pgcron_runner.store.sql_runs")
    model = importlib.import_module("pgcron_runner.model")
    real_open, real_commit = module.open_sql_run, module.commit_sql_run

    async def open_sql_run(connection: Any, worker_id: Any, task: Any) -> Any:
        opened = await real_open(connection, worker_id, task)
        if opened.locked and opened.ours:
            done = model.Outcome(model.Status.SUCCEEDED)
            await real_commit(connection, worker_id, task, done, opened.transaction_id)
            await real_open(connection, worker_id, task)
        return opened

    async def commit_sql_run(connection: Any, *_: Any) -> bool:
        await connection.execute("commit")
        return True

    module.commit_sql_run = commit_sql_run
    return open_sql_run


def _work_first(real: Any) -> Any:
    async def commit_sql_run(connection: Any, worker_id: Any, task: Any, outcome: Any, _: str) -> Any:
        await connection.execute("commit")
        await asyncio.sleep(0.1)
        await connection.execute("begin")
        cursor = await connection.execute("select pg_catalog.pg_current_xact_id()::text")
        (transaction_id,) = await cursor.fetchone()
        return await real(connection, worker_id, task, outcome, transaction_id)

    return commit_sql_run


def _without_end(real: Any) -> Any:
    return lambda policy, *rest, **named: real(replace(policy, max_attempts=10**6), *rest, **named)


_FINISH = "where r.id = o.run_id and r.worker_id = %(worker_id)s and r.status = 'running'"
_LIVING = "select id, beat, extract(epoch from lease)::float8 from pgcron.workers where ended_at is null"
_END = "set status = o.status, finished_at = coalesce(%(now)s::timestamptz, clock_timestamp()),"
_SAME_ROW = (
    "set status = case when o.retry_in is null then o.status else 'queued' end,"
    " finished_at = case when o.retry_in is null then clock_timestamp() end,"
    " attempt = r.attempt + case when o.retry_in is null then 0 else 1 end,"
    " worker_id = case when o.retry_in is null then r.worker_id end,"
    " started_at = case when o.retry_in is null then r.started_at end, lane = null,"
)

ALL = (
    Mutant(
        "no-fence",
        "a run is finished by its id alone",
        sql(finish_runs=(_FINISH, "where r.id = o.run_id and %(worker_id)s::uuid is not null")),
        ("frozen for longer", "line cut silently"),
        rate=9,
    ),
    Mutant(
        "lease-by-the-database's-clock",
        "a worker is dead when its heartbeat is old by the database's clock",
        sql(
            list_beats=(
                _LIVING,
                f"{_LIVING.replace('extract(epoch from lease)', '0')} and heartbeat_at < clock_timestamp() - lease",
            )
        ),
        ("clock stepped for a moment",),
    ),
    Mutant(
        "deadline-from-the-answer",
        "a worker counts its lease from the answer to its heartbeat",
        attribute("decisions.standing:own_deadline", _deadline_from_the_answer),
        ("answers late",),
        rate=7,
    ),
    Mutant(
        "lock-alone",
        "a worker is dead when its sessions are gone; no lease",
        all_of(
            sql(
                list_beats=(
                    _LIVING,
                    f"{_LIVING} and not exists (select from pg_stat_activity where application_name = 'pgcron ' || id)",
                )
            ),
            attribute("leases:Watch.observe", _all_silent),
        ),
        ("all sessions ended", "server restarted", "line reset"),
    ),
    Mutant(
        "lease-alone",
        "no advisory lock is taken",
        sql(claim_runs=("pg_try_advisory_lock('pgcron'::regnamespace::oid::int, job_id)", "true")),
        ("listening session ended",),
    ),
    Mutant(
        "unlock-before-record",
        "the lock of a job is given back before its run has ended and is recorded",
        attribute("claim:Claim.step", _unlocked),
        ("listening session ended",),
    ),
    Mutant(
        "no-deadline-in-the-guard",
        "the guard kills nothing while its worker is silent",
        attribute("execution.processes:Guard.feed", _for_ever),
        ("frozen for longer",),
        rate=9,
    ),
    Mutant(
        "commands-outlive-their-worker",
        "the guard does not hear of its worker's death",
        all_of(
            attribute("execution.processes:Guard.feed", _for_ever),
            attribute("execution.processes:Guard.start", _kept_open),
        ),
        ("worker killed",),
        rate=9,
    ),
    Mutant(
        "retry-in-the-same-row",
        "the next attempt is the same row, queued again",
        sql(finish_runs=(_END, _SAME_ROW)),
        ("worker killed",),
    ),
    Mutant(
        "record-before-work",
        "`succeeded` is committed before the SQL job's statements",
        attribute("store.sql_runs:open_sql_run", _record_first),
        ("SQL job's session", "all sessions ended"),
    ),
    Mutant(
        "work-before-record",
        "the SQL job's statements are committed before `succeeded`",
        attribute("store.sql_runs:commit_sql_run", _work_first),
        ("SQL job's session", "all sessions ended", "worker killed"),
    ),
    Mutant(
        "attempts-without-end",
        "what fails is tried again whatever its limit",
        attribute("retry:retry_in", _without_end),
        ("worker killed",),
    ),
    Mutant(
        "what-was-missed-is-forgotten",
        "occurrences of an outage leave no row",
        attribute("planning:_missed", lambda _: lambda *__: []),
        ("server away",),
        rate=9,
    ),
    Mutant(
        "any-clock-is-believed",
        "a clock that has just stepped is gone by at once",
        attribute("leases:ClockWatch.steady", lambda _: property(lambda __: True)),
        ("clock stepped for a moment",),
    ),
)


def find(name: str) -> Mutant:
    """Raises LookupError with all names."""
    for mutant in ALL:
        if mutant.name == name:
            return mutant
    raise LookupError(f"There is no mutant {name!r}. There are: {', '.join(mutant.name for mutant in ALL)}.")
