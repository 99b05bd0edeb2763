"""Who may be believed alive, and until when: pure rules on each observer's own clock. No wall clock is compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
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
    looked_at: float | None = None

    def observe(self, beats: Iterable[Beat], now: float) -> tuple[Watch, list[Beat]]:
        """The memory after this look, and the workers whose beat has stood still for a whole lease.

        Only while this observer could see: after an outage of the database nobody has beaten, and that is no silence.
        """
        blind = self.looked_at is not None and now - self.looked_at > self.own_lease / 2
        sightings: dict[UUID, Sighting] = {}
        silent: list[Beat] = []
        for seen in beats:
            known = self.sightings.get(seen.worker_id)
            if blind and known is not None:
                known = replace(known, first_seen=now)
            lease = seen.lease if seen.lease is not None else known.lease if known else self.own_lease
            if known is None or known.beat != seen.beat:
                known = Sighting(seen.beat, lease, now)
            elif now - known.first_seen >= lease:
                silent.append(seen)
            sightings[seen.worker_id] = known
        return Watch(self.own_lease, sightings, now), silent

    def look_in(self, now: float) -> float | None:
        """Seconds until the first of them has been silent for its lease, should it not beat; None: there is nobody."""
        ends = [seen.first_seen + seen.lease - now for seen in self.sightings.values()]
        return min((left for left in ends if left > 0), default=None)


@dataclass(frozen=True, slots=True)
class ClockWatch:
    """Notices when the database's wall clock steps against this host's boot-time clock.

    While it is not steady nothing is fired: a step of a minute would turn most occurrences into missed ones.
    """

    offset: float | None = None
    stepped_at: float | None = None

    TOLERANCE = 2.0
    SETTLE = 10.0

    def observe(self, database_now: datetime, sent_at: float, answered_at: float) -> ClockWatch:
        """The state after one reading, which was taken at some moment between the two on the boot-time clock."""
        least, most = database_now.timestamp() - answered_at, database_now.timestamp() - sent_at
        if self.offset is None:
            return ClockWatch(least)
        if not least - self.TOLERANCE <= self.offset <= most + self.TOLERANCE:
            return ClockWatch(least, answered_at)
        settled = self.stepped_at is not None and answered_at - self.stepped_at >= self.SETTLE
        # Follows as far as this reading shows: clocks drift, and only a jump between two readings is a step.
        return ClockWatch(min(max(self.offset, least), most), None if settled else self.stepped_at)

    @property
    def steady(self) -> bool:
        return self.stepped_at is None
