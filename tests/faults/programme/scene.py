"""What faults act on: servers and hosts; and the true story of clocks and failovers, kept for the checker."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import psycopg

from tests.faults.checker import SplitBrain
from tests.faults.programme.hosts import Host, boottime
from tests.faults.programme.nodes import Cluster


@dataclass(frozen=True, slots=True)
class Done:
    """A fault that was done, on the boot-time clock. `what` says more than its kind."""

    kind: str
    target: str
    began_at: float
    ended_at: float
    what: str = ""

    def __str__(self) -> str:
        return f"{self.kind} on {self.target} {self.what}".strip()


@dataclass
class Scene:
    """One run of the programme on its stage. `still` is held by whoever needs the database's clock to be right."""

    cluster: Cluster
    hosts: list[Host]
    lease: float
    chance: random.Random
    volumes: bool
    still: threading.Lock = field(default_factory=threading.Lock)
    server_busy: threading.Lock = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)
    done: list[Done] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    splits: list[SplitBrain] = field(default_factory=list)
    steps: list[tuple[float, datetime, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.note_clock(trusted=True)

    def pause(self, least: float, most: float) -> None:
        """Holds a fault for a while, or until the storm is over."""
        self.ended.wait(self.chance.uniform(least, most))

    def note_clock(self, *, trusted: bool) -> None:
        """What the database's clock shows from now on."""
        offset = self.cluster.clock.offset if self.cluster.clock else 0.0
        now, at = time.time(), boottime()
        self.steps.append((at, datetime.fromtimestamp(now + offset - at, UTC), trusted))

    def step_clock(self, seconds: float, *, trusted: bool) -> None:
        assert self.cluster.clock is not None
        self.cluster.clock.step(seconds)
        self.note_clock(trusted=trusted)

    def revive(self) -> None:
        """The primary runs, whatever has become of it."""
        while True:
            try:
                self.cluster.primary.start()
                if self.cluster.primary.is_up():
                    return
            except Exception:  # a full disk, a crash in recovery: the next try may do
                time.sleep(0.3)
            time.sleep(0.05)


def started_runs(connection: psycopg.Connection, since: datetime) -> dict[tuple[int, datetime], tuple[str, str]]:
    """Runs that were claimed since, with their worker and state."""
    rows = connection.execute(
        "select id, scheduled_for, worker_id::text, status from pgcron.runs where started_at >= %s", [since]
    )
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


def minute_ago(connection: psycopg.Connection) -> datetime:
    row = connection.execute("select clock_timestamp()").fetchone()
    assert row is not None
    now: datetime = row[0]
    return now - timedelta(minutes=1)
