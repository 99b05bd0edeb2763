"""When a worker fires, what it claims, and how long it sleeps until something falls due."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

# How long a job is left alone whose lock somebody outside holds.
_REFUSED_FOR = 1.0
_OVERDUE_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Lane:
    """What one claim asks for: a queue, a priority in it, and the queue's own limit."""

    queue: str
    priority: int
    max_running: int | None = None


@dataclass(frozen=True, slots=True)
class LaneDue:
    """What waits in one queue at one priority: whether something is due, and seconds to the next that is not yet."""

    lane: Lane
    is_due: bool
    due_in: float | None


@dataclass(frozen=True, slots=True)
class NextDue:
    """Seconds until the next planned time of any job (None: there is none), and what is queued."""

    jobs_due_in: float | None
    lanes: tuple[LaneDue, ...]


@dataclass(frozen=True, slots=True)
class Agenda:
    """What the last look has told. `queues` None: all; `poll`: seconds of the longest sleep; `once`: fire in one round.

    `jobs_due_at` is on the boot-time clock; `refused`: jobs that are left alone, and until when.
    """

    poll: float
    queues: tuple[str, ...] | None = None
    once: bool = False
    jobs_due_at: float = math.inf
    has_fired: bool = False
    refused: Mapping[int, float] = field(default_factory=dict)

    # What the worker sees.

    def looked(self, due: NextDue, now: float) -> Agenda:
        """It has asked what is due."""
        return replace(self, jobs_due_at=math.inf if due.jobs_due_in is None else now + due.jobs_due_in)

    def fired(self) -> Agenda:
        """It has fired what was due."""
        return replace(self, has_fired=True)

    def refused_by(self, job_ids: Collection[int], now: float) -> Agenda:
        """Somebody else has the locks of these jobs."""
        refused = {job_id: until for job_id, until in self.refused.items() if until > now}
        return replace(self, refused=refused | dict.fromkeys(job_ids, now + _REFUSED_FOR))

    # What it does then.

    def jobs_are_due(self, now: float) -> bool:
        """Whether, by the last look, the time of some job has come."""
        return self.jobs_due_at <= now

    def may_fire(self, *, steady: bool) -> bool:
        """Not while the database's clock is unsteady; with `once` in the first round alone, else it might never end."""
        return steady and not (self.once and self.has_fired)

    def serves(self, lane: Lane) -> bool:
        """Whether this worker takes runs of the lane's queue."""
        return self.queues is None or lane.queue in self.queues

    def in_turn(self, lanes: Iterable[Lane]) -> list[Lane]:
        """Those to claim from, in their order."""
        return sorted(filter(self.serves, lanes), key=lambda lane: (-lane.priority, lane.queue))

    def left_alone(self, now: float) -> list[int]:
        """Jobs that are not claimed for the moment."""
        return [job_id for job_id, until in self.refused.items() if until > now]

    def pause(self, due: NextDue, *, done: int, steady: bool) -> float:
        """Seconds to sleep: until something falls due by the database's clock, and no longer than the poll interval.

        `done`: how many jobs and runs have just been moved.
        """
        jobs_due_in = due.jobs_due_in
        if jobs_due_in is not None and jobs_due_in <= 0 and not done:
            # Others have those jobs locked, or nothing may be fired now: no reason to ask again and again.
            jobs_due_in = _OVERDUE_PAUSE if self.may_fire(steady=steady) else None
        times = [jobs_due_in, *(waiting.due_in for waiting in due.lanes if self.serves(waiting.lane))]
        if self.refused:
            times.append(_REFUSED_FOR)
        return max(min([self.poll, *(time for time in times if time is not None)]), 0.0)
