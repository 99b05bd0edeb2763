"""Dispatch: fires what is due, claims what is queued and starts it, as the agenda says. It ends nothing."""

from __future__ import annotations

from collections.abc import Callable

from pgcron_runner.claim import Claim
from pgcron_runner.clock import boottime
from pgcron_runner.decisions import Agenda, InHand, Lane, NextDue, Standing
from pgcron_runner.execute import Execute
from pgcron_runner.fire import Fire
from pgcron_runner.model import StopReason
from pgcron_runner.schedule import zone_data_version
from pgcron_runner.session import Session
from pgcron_runner.settings import WorkerSettings
from pgcron_runner.store import runs


class Dispatch:
    """One round over fire and claim, on the control session. `standing` tells what the worker may do by now."""

    def __init__(
        self,
        control: Session,
        duties: tuple[Fire, Claim, Execute],
        settings: WorkerSettings,
        standing: Callable[[], Standing],
    ) -> None:
        self._control = control
        self._fire, self._claim, self._execute = duties
        self._slots = settings.slots
        self._standing = standing
        self._agenda = Agenda(settings.poll.total_seconds(), settings.queues, settings.once)

    async def step(self) -> tuple[float | None, int]:
        """Seconds until there may be something to do again (None: somebody will say), and how much was done."""
        if not self._may_begin():
            return self._standing().held_for(boottime()), 0
        done = 0
        if self._agenda.jobs_are_due(boottime()):
            # What the last look has told of; asked for first, since every millisecond here is lateness.
            done += await self._fire_and_claim()
        due = await self._look()
        if self._agenda.jobs_are_due(boottime()):
            done += await self._fire_and_claim()
            due = await self._look()
        for lane in self._agenda.in_turn(waiting.lane for waiting in due.lanes if waiting.is_due):
            done += await self._claim_lane(lane)
        return self._agenda.pause(due, done=done, steady=self._standing().clock.steady), done

    async def _look(self) -> NextDue:
        async with self._control.use() as connection:
            due = await runs.next_due(connection, zone_data=zone_data_version())
        self._agenda = self._agenda.looked(due, boottime())
        return due

    async def _fire_and_claim(self) -> int:
        """Fires batch after batch and claims at once what came of each; returns how many jobs and runs were moved."""
        done, more = 0, self._agenda.may_fire(steady=self._standing().clock.steady)
        while more and self._may_begin():
            fired = await self._fire.step(clock=self._standing().clock)
            for lane in self._agenda.in_turn(fired.lanes):
                done += await self._claim_lane(lane)
            done, more = done + fired.jobs, fired.more
        self._agenda = self._agenda.fired()
        return done

    async def _claim_lane(self, lane: Lane) -> int:
        """Claims until the slots are full or the lane is empty; returns how many runs were begun."""
        begun, more = 0, True
        while more and self._may_begin() and (free := self._slots - self._execute.running) > 0:
            refused = self._agenda.left_alone(boottime())
            claimed = await self._claim.step(lane, limit=free, refused=refused, allowed=self._may_begin)
            self._execute.start(claimed.tasks)
            if not self._standing().holds(boottime()):
                # Claimed, but the answer came too late to be believed: nothing of it is begun.
                self._execute.stop_all(StopReason.LEASE, now=True)
            self._agenda = self._agenda.refused_by(claimed.refused, boottime())
            more = bool(claimed.refused) or (claimed.more and bool(claimed.tasks))
            begun += len(claimed.tasks)
        return begun

    def _may_begin(self) -> bool:
        in_hand = InHand(self._execute.running, len(self._execute.unrecorded))
        return self._standing().may_begin(in_hand, boottime())
