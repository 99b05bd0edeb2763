"""What has really happened, in true time: what no worker knows, and only the one who watches them all can judge."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from tests.faults.checker import Breach, Mark
from tests.model.tables import Row

# No observer's clock runs faster than this.
FASTEST = 1.025
_RULE = "nothing of a worker outlives its lease, and it is not declared dead before"


@dataclass
class Truth:
    """`marks` and `numbers`: what commands did, and which command it was. `changes`: of final rows.

    `beats`: when each worker's last heartbeat was committed; `began`: when each was first there. `complaints`: workers
    that ended by themselves, and exceptions.
    """

    now: Callable[[], float]
    lease: float
    marks: list[Mark] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    beats: dict[UUID, float] = field(default_factory=dict)
    began: list[float] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    breaches: list[Breach] = field(default_factory=list)
    _forgot_at: float = -math.inf

    def marked(self, mark: Mark, number: int, worker_id: UUID) -> None:
        """A command lives: its worker's lease must not be over by the fastest of the others' clocks."""
        self.marks.append(mark)
        self.numbers.append(number)
        over_for = mark.at - self.beats[worker_id] - self.lease / FASTEST
        if over_for > 0:
            text = f"run {mark.run_id} was alive {over_for:.2f} s after its worker's lease"
            self.breaches.append(Breach(_RULE, text, (mark.run_id,), mark.job))

    def forgotten(self) -> None:
        """The server may have lost heartbeats that it had acknowledged: by what is left of them others may act earlier.

        Nothing is begun for a lease after a failover, and a crash loses less than the margin between the two deadlines.
        """
        self._forgot_at = self.now()

    def committed(self, table: str, before: Row | None, after: Row) -> None:
        """A row was changed."""
        if table == "runs" and before is not None and before["finished_at"] is not None and before != after:
            self.changes.append(f"run {after['id']} was {before['status']}, and has become {after['status']}")
        if table == "workers" and before is None:
            self.began.append(self.now())
        if table == "workers" and not after["ended"]:
            self.beats[after["id"]] = self.now()
        elif table == "workers" and after["ended"] == "lost":
            beat_at = self.beats[after["id"]]
            left = beat_at + self.lease / FASTEST - self.now()
            if left > 0 and beat_at > self._forgot_at:
                self.breaches.append(
                    Breach(_RULE, f"a worker was declared dead {left:.2f} s before its lease was over")
                )
