"""What a worker may do by what it knows: until when it may act, and what each event makes of that."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any, TypeAlias

from pgcron_runner.decisions.actions import Action, Beat, End, Feed, Look, Say, StopRuns
from pgcron_runner.leases import ClockWatch, own_deadline
from pgcron_runner.model import StopReason
from pgcron_runner.settings import BATCH

# With so many ends waiting to be written, something is wrong with the database: nothing new is begun.
_TOO_MANY_UNRECORDED = 4 * BATCH
# Timers do not count the time for which a host was suspended, deadlines do: look this often while something runs.
_TICK = 0.25
_UNSEEN = ClockWatch()


class Phase(Enum):
    """Where a tenure is in its life."""

    WORKING = "working"
    DRAINING = "draining"
    REAPED = "reaped"


@dataclass(frozen=True, slots=True)
class InHand:
    """What a worker has in its hands, in figures: runs that go on, and ends that are not written or still locked."""

    running: int = 0
    unrecorded: int = 0


@dataclass(frozen=True, slots=True)
class Beaten:
    """What a heartbeat brought. `sent_at` (boot-time clock) was read before it was sent: the lease counts from there.

    `alive` false: the row was closed by others, and with it all runs. `taken`: runs that are no longer this worker's.
    `given_back`: runs that were claimed by a COMMIT without an answer; they were never begun, and are queued again.
    `lost`: runs that may have been, before a failover; nobody knows any more what they came to.
    """

    sent_at: float
    alive: bool
    database_now: datetime | None = None
    answered_at: float = 0.0
    taken: frozenset[int] = frozenset()
    cancelled: frozenset[int] = frozenset()
    given_back: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Adopted:
    """What a new control session found. `server`: which system and timeline it speaks with; `held_for`: seconds for
    which nothing may be begun on it yet, since it has taken over from another one.

    `taken`: runs in hand whose rows say that they are no longer this worker's. `refused`: runs whose job lock somebody
    else has by now, and their jobs.
    """

    server: str
    held_for: float = 0.0
    taken: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()
    refused_jobs: frozenset[int] = frozenset()


Decision: TypeAlias = "tuple[Standing, tuple[Action, ...]]"


@dataclass(frozen=True, slots=True)
class Standing:
    """All times are on the boot-time clock of the worker, which is called `worker`.

    `deadline`: until then it may act, counted from before the last heartbeat that was answered was sent.
    `search_until`: until then a claim may turn up whose COMMIT it never heard the answer of; `doubt_until`: or a run
    that it has recorded before a failover. `held_until`: before that nothing is begun. `patient_until`: what still runs
    then is interrupted by a drain, which ends at `give_up_at` at the latest, written or not.
    """

    worker: str
    lease: float
    deadline: float = -math.inf
    phase: Phase = Phase.WORKING
    clock: ClockWatch = _UNSEEN
    server: str | None = None
    search_until: float = -math.inf
    doubt_until: float = -math.inf
    held_until: float = -math.inf
    patient_until: float = math.inf
    give_up_at: float = math.inf
    lapse_told: bool = False

    # What it may do.

    @property
    def is_stopping(self) -> bool:
        """Nothing new is begun any more."""
        return self.phase is not Phase.WORKING

    def holds(self, now: float) -> bool:
        """Whether the lease was renewed in time: what runs is still this worker's alone."""
        return now < self.deadline

    def may_begin(self, in_hand: InHand, now: float) -> bool:
        """Whether runs may be fired and claimed."""
        return (
            self.phase is Phase.WORKING
            and self.held_until <= now < self.deadline
            and in_hand.unrecorded < _TOO_MANY_UNRECORDED
        )

    def held_for(self, now: float) -> float | None:
        """Seconds until a time is over in which nothing is begun; None: there is none."""
        return self.held_until - now if now < self.held_until else None

    def searches(self, now: float) -> bool:
        """Whether heartbeats look for runs that this worker has without knowing."""
        return now < self.search_until

    def doubts(self, now: float) -> bool:
        """Whether such a run may have been begun and recorded already, on a server that is no more."""
        return now < self.doubt_until

    # What each event makes of it.

    def renewed(self, sent_at: float, now: float) -> Decision:
        """A heartbeat (or the registration) that was sent at `sent_at` has been answered."""
        standing = replace(self, deadline=own_deadline(sent_at, self.lease), lapse_told=False)
        look = () if self.holds(now) else (Look(),)
        return standing, (Feed(standing.deadline), *look)

    def beaten(self, beaten: Beaten, run_ids: Collection[int], now: float) -> Decision:
        """A heartbeat's answer has come; `run_ids` are in hand by now."""
        if not beaten.alive:
            return self._reaped(len(run_ids))
        standing, renewal = self.renewed(beaten.sent_at, now)
        standing, clock = standing._watch_clock(beaten)
        actions = [*renewal, *clock]
        # A run that ended and was recorded between the list and the answer is not taken, just over.
        if taken := beaten.taken.intersection(run_ids):
            actions.append(StopRuns(StopReason.LEASE, taken, now=True))
        if beaten.cancelled:
            actions.append(StopRuns(StopReason.CANCEL, beaten.cancelled))
        if beaten.given_back:
            facts = {"runs": sorted(beaten.given_back), "consequence": "they wait for a worker again"}
            actions += [Say("claims_given_back", facts), Look()]
        if beaten.lost:
            facts = {"runs": sorted(beaten.lost), "consequence": "they are closed as lost; nobody knows how they ended"}
            actions += [Say("runs_forgotten", facts), Look()]
        return standing, tuple(actions)

    def _reaped(self, in_hand: int) -> Decision:
        consequence = "its runs were closed as lost; they are stopped, and it begins anew under a new id"
        facts = {"worker": self.worker, "in_hand": in_hand, "consequence": consequence}
        actions = (Say("worker_reaped", facts), StopRuns(StopReason.LEASE, now=True), End())
        return replace(self, phase=Phase.REAPED), actions

    def _watch_clock(self, beaten: Beaten) -> Decision:
        assert beaten.database_now is not None
        clock = self.clock.observe(beaten.database_now, beaten.sent_at, beaten.answered_at)
        actions: tuple[Action, ...] = ()
        if self.clock.steady and not clock.steady:
            consequence = "nothing is fired until it has been steady for ten seconds"
            actions = (Say("database_clock_stepped", {"consequence": consequence}),)
        elif not self.clock.steady and clock.steady:
            actions = (Say("database_clock_steady", warning=False), Look())
        return replace(self, clock=clock), actions

    def adopted(self, adopted: Adopted, running: Collection[int], now: float) -> Decision:
        """A new control session is there; `running` are the runs that go on by now."""
        # The last claim may have been committed without our knowing, or still be on its way through a dying session.
        standing = replace(self, server=adopted.server, search_until=now + 2 * self.lease)
        actions: list[Action] = []
        if adopted.held_for > 0:
            # What the server before has acknowledged may be unknown here. Whoever has begun it knows by then, or has
            # stopped it.
            standing = replace(standing, held_until=max(self.held_until, now + adopted.held_for))
        facts: dict[str, Any] = {"consequence": f"nothing is begun for {adopted.held_for:.3g} s, while others find out"}
        if self.server not in (None, adopted.server):
            standing = replace(standing, doubt_until=standing.search_until)
            actions.append(Say("database_failed_over", facts | {"before": self.server, "now": adopted.server}))
        elif adopted.held_for > 0:
            actions.append(Say("database_has_taken_over", facts | {"now": adopted.server}))
        if taken := adopted.taken.intersection(running):
            facts = {"runs": sorted(taken), "consequence": "they are stopped"}
            actions.append(Say("runs_taken_over", facts))
        if adopted.refused_jobs:
            facts = {"jobs": sorted(adopted.refused_jobs), "consequence": "their runs are stopped"}
            actions.append(Say("locks_taken_over", facts))
        if lost := taken | adopted.refused:
            actions.append(StopRuns(StopReason.LEASE, lost, now=True))
        return standing, (*actions, Beat())

    def told_to_stop(self, patience: float | None, in_hand: InHand, now: float) -> Decision:
        """A drain was asked for: what runs may come to its end, within `patience` seconds if that is not None."""
        if self.is_stopping:
            return self, ()
        until = math.inf if patience is None else now + patience
        said = Say("worker_draining", {"running": in_hand.running}, warning=False)
        return replace(self, phase=Phase.DRAINING, patient_until=until), (said, Beat())

    def interrupted(self, in_hand: InHand, *, at_once: bool) -> Decision:
        """What runs is to end, as `interrupted`. `at_once`: without the grace."""
        facts = {"running": in_hand.running, "consequence": "they are tried again where attempts remain"}
        phase = self.phase if self.is_stopping else Phase.DRAINING
        standing = replace(self, phase=phase, patient_until=math.inf)
        return standing, (Say("runs_interrupted", facts), StopRuns(StopReason.DRAIN, now=at_once))

    # What the passing of time makes of it.

    def elapsed(self, in_hand: InHand, now: float) -> Decision:
        """Time has passed, or what is in hand has changed."""
        standing, actions = self, list[Action]()
        if in_hand.running and not self.holds(now):
            standing, actions = self._lapsed(in_hand)
        if self.phase is Phase.DRAINING:
            standing, more = standing._drained(in_hand, now)
            actions += more
        return standing, tuple(actions)

    def _lapsed(self, in_hand: InHand) -> tuple[Standing, list[Action]]:
        actions: list[Action] = [StopRuns(StopReason.LEASE, now=True)]
        if not self.lapse_told:
            consequence = "the runs are stopped, before others may take them"
            actions.append(Say("lease_not_renewed", {"running": in_hand.running, "consequence": consequence}))
        return replace(self, lapse_told=True), actions

    def _drained(self, in_hand: InHand, now: float) -> Decision:
        if in_hand.running:
            return self.interrupted(in_hand, at_once=False) if now >= self.patient_until else (self, ())
        # Beyond the lease others will have closed what is not written by then.
        give_up_at = min(self.give_up_at, self.deadline + self.lease)
        over = not in_hand.unrecorded or now >= give_up_at
        return replace(self, patient_until=math.inf, give_up_at=give_up_at), (End(),) if over else ()

    def elapses_in(self, in_hand: InHand, now: float) -> float:
        """Seconds until time may make something of it; infinite where only an event can."""
        times = [self.patient_until, self.give_up_at]
        if self.holds(now):
            times.append(self.deadline)
        if in_hand.running:
            times.append(now + _TICK)
        return max(min(times) - now, 0.0)
