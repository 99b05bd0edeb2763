"""The protocol broken on purpose, in the product or in a statement: a model that does not notice proves nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch
from uuid import UUID

from pgcron_runner import finish, planning, retry
from pgcron_runner.claim import Claim
from pgcron_runner.clock import boottime
from pgcron_runner.decisions import standing
from pgcron_runner.execute import Execute
from pgcron_runner.leases import Beat, ClockWatch, Watch
from pgcron_runner.reap import Reap
from pgcron_runner.store import runs
from pgcron_runner.store.runs import LockedJob
from pgcron_runner.store.workers import application_name
from tests.model import statements
from tests.model.machine import Guard
from tests.model.server import Session
from tests.model.statements import STATEMENTS, Params, Rows, list_beats, note_timeline
from tests.model.tables import Row, Transaction

_claim_step, _retry_in = Claim.step, retry.retry_in


@dataclass(frozen=True, slots=True)
class Mutant:
    """`what` is wrong with it, and what stands in for the right things: (owner or dictionary, name, stand-in).

    `only`: the faults that should bring it to light; none: all.
    """

    what: str
    patches: tuple[tuple[Any, str, Any], ...]
    only: tuple[str, ...] = ()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Until the end of the block."""
        with ExitStack() as stack:
            for owner, name, stand_in in self.patches:
                change = patch.dict(owner, {name: stand_in}) if isinstance(owner, dict) else None
                stack.enter_context(change or patch.object(owner, name, stand_in))
            yield


def _by_id_alone(tx: Transaction, _: UUID, run_ids: list[int]) -> Iterator[Row]:
    locked = [tx.lock("runs", run_id) for run_id in sorted(run_ids)]
    return (run for run in locked if run)


def _beats_by_clock(tx: Transaction, p: Params) -> Rows:
    rows: Rows = []
    for worker_id, beat, _ in list_beats(tx, p):
        worker = tx.get("workers", worker_id)
        if worker is None or worker["heartbeat_at"] < tx.now - worker["lease"]:
            rows.append((worker_id, beat, 0.0))
    return rows


def _beats_by_sessions(tx: Transaction, p: Params) -> Rows:
    names = {session.name for session in tx.session.server.sessions.values()}
    return [row for row in list_beats(tx, p) if application_name(row[0]) not in names]


def _all_silent(self: Watch, beats: Iterable[Beat], now: float) -> tuple[Watch, list[Beat]]:
    return Watch(self.own_lease, {}, now), list(beats)


async def _unlocked(self: Claim, *arguments: Any, **named: Any) -> Any:
    claimed = await _claim_step(self, *arguments, **named)
    async with self._session.use() as connection:
        await runs.release_job_locks(connection, [LockedJob(task.job_id, task.exclusive) for task in claimed.tasks])
    return claimed


def _fed_for_ever(self: Guard, deadline: float) -> None:
    self._deadline = math.inf


MUTANTS = {
    "no-fence": Mutant(
        "a run is finished by its id alone",
        ((statements, "_held", _by_id_alone),),
        (
            "stop",
            "suspend",
            "cut",
        ),
    ),
    "deadline-from-the-answer": Mutant(
        "a worker counts its lease from the answer to its heartbeat",
        ((standing, "own_deadline", lambda _, lease: boottime() + lease * 0.8),),
        ("answer_late",),
    ),
    "lease-by-the-database's-clock": Mutant(
        "a worker is dead when its heartbeat is old by the database's clock",
        ((STATEMENTS, "list_beats", _beats_by_clock), (Watch, "observe", _all_silent)),
        ("step_clock",),
    ),
    "lock-alone": Mutant(
        "a worker is dead when its sessions are gone; no lease",
        ((STATEMENTS, "list_beats", _beats_by_sessions), (Watch, "observe", _all_silent)),
    ),
    "lease-alone": Mutant("no advisory lock is taken", ((Session, "try_lock", lambda *_, **__: True),), ("hold_lock",)),
    "unlock-before-record": Mutant(
        "the lock of a job is given back before its run has ended", ((Claim, "step", _unlocked),), ("hold_lock",)
    ),
    "no-deadline-in-the-guard": Mutant(
        "the guard kills nothing while its worker is silent",
        ((Guard, "feed", _fed_for_ever),),
        (
            "stop",
            "cut",
        ),
    ),
    "claims-after-the-deadline": Mutant(
        "a claim is believed although its answer came after the deadline, and so does the guard",
        ((Execute, "stop_all", lambda *_, **__: None), (Guard, "feed", _fed_for_ever)),
        ("answer_late", "stop"),
    ),
    "no-pause-after-a-failover": Mutant(
        "a server that has just taken over is used at once",
        ((STATEMENTS, "note_timeline", lambda tx, p: [(note_timeline(tx, p)[0][0], 0.0)]),),
        ("promote",),
    ),
    "looks-at-beats-alone": Mutant(
        "silence is looked for with each heartbeat, not when a lease is over",
        ((Reap, "look_in", lambda *_: None),),
        ("cancel",),
    ),
    "attempts-without-end": Mutant(
        "what fails is tried again whatever its limit",
        ((finish, "retry_in", lambda policy, *rest: _retry_in(replace(policy, max_attempts=10**6), *rest)),),
    ),
    "what-was-missed-is-forgotten": Mutant(
        "occurrences of an outage leave no row", ((planning, "_missed", lambda *_: []),)
    ),
    "any-clock-is-believed": Mutant(
        "a clock that has just stepped is gone by at once",
        ((ClockWatch, "steady", property(lambda _: True)),),
        ("step_clock",),
    ),
}
