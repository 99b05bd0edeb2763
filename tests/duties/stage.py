"""The duties of one worker on real sessions, to be stepped by hand with a set clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID, uuid4

from pgcron_runner.claim import Claim
from pgcron_runner.database import Database, Purpose
from pgcron_runner.decisions import Beaten, Lane, Standing
from pgcron_runner.errors import DatabaseUnavailable
from pgcron_runner.finish import Finish
from pgcron_runner.fire import Fire
from pgcron_runner.heartbeat import Heartbeat
from pgcron_runner.model import Finished, Kind, Outcome, Task
from pgcron_runner.prune import Prune
from pgcron_runner.reap import Reap
from pgcron_runner.schedule import zone_data_version
from pgcron_runner.session import Session
from pgcron_runner.settings import WorkerSettings
from pgcron_runner.store import workers
from pgcron_runner.store.runs import LockedJob
from pgcron_runner.tidy import Tidy

T = TypeVar("T")

LANE = Lane("default", 0)
FACTS = {"host": "test", "pid": 1, "version": "0"}


@dataclass
class Stage:
    """A worker that does only what the test steps. `in_hand` is what it has claimed and not yet finished."""

    id: UUID
    control: Session
    record: Session
    lease: float
    zone_data: str | None = None
    in_hand: dict[int, Task] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fire = Fire(self.control, zone_data=self.zone_data)
        self.claim = Claim(self.control, self.id, tuple(Kind), self.locks)
        self.finish = Finish(self.record, self.control, self.id)
        self.heartbeat = Heartbeat(self.control, self.id)
        self.reap = Reap(self.record, self.id, self.lease)
        self.tidy = Tidy(self.record, zone_data=self.zone_data)
        self.prune = Prune(self.record)

    def locks(self) -> list[LockedJob]:
        return [LockedJob(task.job_id, task.exclusive) for task in self.in_hand.values()]

    async def take(self, *, limit: int = 100, now: datetime | None = None) -> list[Task]:
        """Claims what is due in the default queue."""
        claimed = await self.claim.step(LANE, limit=limit, now=now)
        self.in_hand |= {task.run_id: task for task in claimed.tasks}
        return claimed.tasks

    async def beat(self, in_hand: Callable[[], Collection[int]], **standing: Any) -> Beaten:
        """One heartbeat, with these of its rights set."""
        return await self.heartbeat.step(in_hand, lambda: Standing(str(self.id), self.lease, **standing))

    async def end(self, task: Task, outcome: Outcome, *, now: datetime | None = None) -> bool:
        """Finishes a claimed run and gives its lock back; False where it was no longer this worker's."""
        finished = [Finished(task, outcome)]
        taken = await _persistently(lambda: self.finish.step(finished, now=now))
        await _persistently(lambda: self.finish.release(finished))
        self.in_hand.pop(task.run_id, None)
        return task.run_id not in taken


async def _persistently(step: Callable[[], Awaitable[T]]) -> T:
    """As the loops do: a session that is lost in use is opened anew at the next one."""
    try:
        return await step()
    except DatabaseUnavailable:
        return await step()


@asynccontextmanager
async def staged(dsn: str, *, lease: float = 30.0, zone_data: str | None = None) -> AsyncIterator[Stage]:
    """A registered worker; its sessions end with the block. It watches the others for `lease` seconds.

    It says that it has this release of zone data; the rules themselves are always this host's.
    """
    worker_id = uuid4()
    database = Database(dsn, workers.application_name(worker_id))
    control, record = Session(database, Purpose.CONTROL), Session(database, Purpose.RECORD)
    try:
        async with control.use() as connection:
            facts = FACTS | {"zone_data": zone_data or zone_data_version()}
            await workers.register_worker(connection, worker_id, WorkerSettings(name="stage"), facts)
        yield Stage(worker_id, control, record, lease, zone_data)
    finally:
        await control.close()
        await record.close()
