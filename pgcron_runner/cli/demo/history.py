"""What the demo reads from and writes to the database: one function a statement. It decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from pgcron_runner.database import Connection
from pgcron_runner.model import Kind, Status, Trigger
from pgcron_runner.promises import CountedJob, RunRow
from pgcron_runner.statements import query


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as the live table shows it. `due_in`: seconds, None: never again."""

    name: str
    schedule: str
    due_in: float | None


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker; `lease` and `silence` (since its heartbeat) in seconds, `end_reason` None while it has not ended."""

    name: str
    pid: int
    lease: float
    silence: float
    end_reason: str | None

    @property
    def is_silent(self) -> bool:
        """True where two heartbeats or more have not come, and nobody has closed its row yet."""
        return self.end_reason is None and self.silence > self.lease / 2.5


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the demo looks at, read in one moment. Runs are oldest first."""

    jobs: tuple[JobRow, ...] = ()
    workers: tuple[WorkerRow, ...] = ()
    runs: tuple[RunRow, ...] = ()

    def runs_of(self, job: str, *statuses: Status) -> list[RunRow]:
        """The runs of a job, oldest first; with statuses only those."""
        return [run for run in self.runs if run.job_name == job and (not statuses or run.status in statuses)]

    @property
    def running(self) -> list[RunRow]:
        return [run for run in self.runs if run.status is Status.RUNNING]


async def create_report_table(connection: Connection) -> None:
    await connection.execute(query("create_demo_report"))


async def add_jobs(connection: Connection) -> None:
    """Five rows in `pgcron.jobs`."""
    await connection.execute(query("insert_demo_report"))
    await connection.execute(query("insert_demo_jobs"))


def first_insert() -> str:
    """The INSERT that is shown, without its comment: the text that runs is the text on the screen."""
    lines = query("insert_demo_report").decode().splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))


async def read_snapshot(connection: Connection) -> Snapshot:
    async with connection.transaction():
        await connection.execute("set transaction isolation level repeatable read, read only")
        jobs = await (await connection.execute(query("list_demo_jobs"))).fetchall()
        workers = await (await connection.execute(query("list_demo_workers"))).fetchall()
        runs = await list_runs(connection)
    return Snapshot(tuple(JobRow(*row) for row in jobs), tuple(WorkerRow(*row) for row in workers), tuple(runs))


async def list_runs(connection: Connection) -> list[RunRow]:
    cursor = await connection.execute(query("list_demo_runs"))
    return [
        RunRow(
            id=row[0],
            job_name=row[1],
            kind=Kind(row[2]),
            trigger=Trigger(row[3]),
            scheduled_for=row[4],
            attempt=row[5],
            status=Status(row[6]),
            worker=row[7],
            started_at=row[8],
            finished_at=row[9],
            reason=row[10],
            error=row[11],
            missed_count=row[12],
            missed_until=row[13],
        )
        for row in await cursor.fetchall()
    ]


async def disable_jobs(connection: Connection) -> list[CountedJob]:
    """Nothing falls due any more; returns what every job counted up to now."""
    cursor = await connection.execute(query("disable_demo_jobs"))
    return [CountedJob(*row) for row in await cursor.fetchall()]


async def list_reports(connection: Connection) -> list[int]:
    """The run id of every row that the SQL job has written."""
    cursor = await connection.execute(query("list_demo_reports"))
    return [row[0] for row in await cursor.fetchall()]
