"""Who may be believed alive, and until when: pure rules on each observer's own clock. No wall clock is compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

# The share of a lease that a worker keeps between its own deadline and the moment others may act: hosts whose
# clocks run 5 % apart still agree on the order, and 40 % of it is left for killing the commands.
MARGIN = 0.2
# Heartbeats per lease: three may be lost before the worker stops its runs.
BEATS_PER_LEASE = 6


def beat_interval(lease: float) -> float:
    """Seconds between two heartbeats of a worker with this lease (seconds)."""
    return lease / BEATS_PER_LEASE


def own_deadline(sent_at: float, lease: float) -> float:
    """Until when a worker may act on a heartbeat that it *sent* at `sent_at` (both on its boot-time clock).

    Counted from before the send: the statement may have waited, and the others count from a later moment.
    """
    return sent_at + lease * (1 - MARGIN)


@dataclass(frozen=True, slots=True)
class Beat:
    """What a database row says of a worker; `beat` and `lease` (seconds) are None where it has no living row."""

    worker_id: UUID
    beat: int | None
    lease: float | None


@dataclass(frozen=True, slots=True)
class Sighting:
    """When this observer first saw a worker with this very beat, on the observer's own clock."""

    beat: int | None
    lease: float
    first_seen: float


@dataclass(frozen=True, slots=True)
class Watch:
    """What one observer remembers of the others. `own_lease` (seconds) stands in where a row is missing."""

    own_lease: float
    sightings: dict[UUID, Sighting] = field(default_factory=dict)

    def observe(self, beats: Iterable[Beat], now: float) -> tuple[Watch, list[Beat]]:
        """The memory after this look, and the workers whose beat has stood still for a whole lease."""
        sightings: dict[UUID, Sighting] = {}
        silent: list[Beat] = []
        for seen in beats:
            known = self.sightings.get(seen.worker_id)
            lease = seen.lease if seen.lease is not None else known.lease if known else self.own_lease
            if known is None or known.beat != seen.beat:
                known = Sighting(seen.beat, lease, now)
            elif now - known.first_seen >= lease:
                silent.append(seen)
            sightings[seen.worker_id] = known
        return Watch(self.own_lease, sightings), silent


@dataclass(frozen=True, slots=True)
class ClockWatch:
    """Notices when the database's wall clock steps against this host's boot-time clock.

    While it is not steady nothing is fired: a step of a minute would turn most occurrences into missed ones.
    """

    offset: float | None = None
    stepped_at: float | None = None

    TOLERANCE = 2.0
    SETTLE = 10.0

    def observe(self, database_now: datetime, boottime: float) -> ClockWatch:
        """The state after one reading; `boottime` was read when the answer came."""
        offset = database_now.timestamp() - boottime
        if self.offset is None:
            return ClockWatch(offset)
        if abs(offset - self.offset) > self.TOLERANCE:
            return ClockWatch(offset, boottime)
        settled = self.stepped_at is not None and boottime - self.stepped_at >= self.SETTLE
        # The new offset is kept: clocks drift, and only a jump between two readings is a step.
        return ClockWatch(offset, None if settled else self.stepped_at)

    @property
    def steady(self) -> bool:
        return self.stepped_at is None
