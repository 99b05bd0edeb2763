"""What the demo shows while it goes on: narrated lines, and below them, on a terminal, a live table."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pgcron_runner.cli.demo.history import JobRow, Snapshot, WorkerRow
from pgcron_runner.model import Status
from pgcron_runner.promises import RunRow

_WIDE = 130
_MARGIN = 8
_COLOURS = {
    Status.RUNNING: "cyan",
    Status.QUEUED: "blue",
    Status.SUCCEEDED: "green",
    Status.FAILED: "red",
    Status.LOST: "bold red",
    Status.SKIPPED: "yellow",
    Status.MISSED: "yellow",
    Status.INTERRUPTED: "yellow",
    Status.CANCELLED: "dim",
}
COUNTED = (Status.SUCCEEDED, Status.FAILED, Status.LOST, Status.SKIPPED)


class Screen:
    """On a terminal everything; elsewhere plain lines without control codes. Times are seconds since it was opened."""

    def __init__(self) -> None:
        self.began_at = datetime.now(UTC)
        self._began = time.monotonic()
        self._is_live = sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
        self.console = Console(highlight=False) if self._is_live else Console(color_system=None, width=100)
        self._live = Live(console=self.console, auto_refresh=False, transient=True)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def since(self, instant: datetime) -> float:
        """An instant of the database's, which has this host's clock, on the scale of `elapsed`."""
        return (instant - self.began_at).total_seconds()

    def act(self, title: str) -> None:
        self.console.print()
        self.console.print(Text(title, "bold"))

    def say(self, text: str) -> None:
        """One thing that has just happened."""
        indent = " " * _MARGIN
        wrapped = textwrap.wrap(text, max(self.console.width - _MARGIN - 1, 30), break_on_hyphens=False)
        stamp = f"{self.elapsed:5.1f} s "
        self.console.print(Text.assemble((stamp, "dim"), f"\n{indent}".join(wrapped)), soft_wrap=True)

    def code(self, text: str) -> None:
        """Something to be typed, as it stands."""
        self.console.print(Text(textwrap.indent(text, " " * _MARGIN), "cyan"), soft_wrap=True)

    def show(self, snapshot: Snapshot, note: str) -> None:
        """Renew the live table; `note` tells what is being waited for."""
        if self._is_live:
            self._live.update(self._picture(snapshot, note), refresh=True)

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def _picture(self, snapshot: Snapshot, note: str) -> RenderableType:
        wide = self.console.width >= _WIDE
        used = len(snapshot.jobs) + len(snapshot.workers) + 12
        latest = 12 if wide else min(max(self.console.height - used - 5, 3), 12)
        left: list[RenderableType] = [_jobs_table(snapshot), Text(), _workers_table(snapshot)]
        right = self._runs_table(snapshot, latest)
        foot = Text.assemble((f"\n{self.elapsed:5.1f} s ", "dim"), (note, "italic"), no_wrap=True, overflow="ellipsis")
        if not wide:
            return Group(Text(), *left, Text(), right, foot)
        columns = Table.grid(padding=(0, 4))
        columns.add_row(Group(*left), right)
        return Group(Text(), columns, foot)

    def _runs_table(self, snapshot: Snapshot, count: int) -> Table:
        table = _table(
            "run", "latest runs", "attempt", "status", "worker", "seconds", right=("run", "attempt", "seconds")
        )
        for run in [run for run in reversed(snapshot.runs) if run.status is not Status.QUEUED][:count]:
            table.add_row(
                str(run.id),
                run.job_name,
                str(run.attempt) if run.attempt > 1 else "",
                Text(run.status, _COLOURS.get(run.status, "")),
                run.worker or "",
                self._seconds(run),
            )
        return table

    def _seconds(self, run: RunRow) -> str:
        if run.started_at is None:
            return ""
        end = self.elapsed if run.finished_at is None else self.since(run.finished_at)
        return f"{max(end - self.since(run.started_at), 0):.1f}"


def _jobs_table(snapshot: Snapshot) -> Table:
    counted = [str(status) for status in COUNTED]
    table = _table("job", "schedule", "due in", *counted, "now", right=("due in", *counted))
    for job in snapshot.jobs:
        runs = snapshot.runs_of(job.name)
        counts = [sum(run.status is status for run in runs) for status in COUNTED]
        cells = [
            Text(str(count) if count else "·", _COLOURS[status] if count else "dim")
            for count, status in zip(counts, COUNTED, strict=True)
        ]
        table.add_row(job.name, job.schedule, _due_in(job), *cells, _now(runs))
    return table


def _due_in(job: JobRow) -> str:
    return "" if job.due_in is None else f"{max(job.due_in, 0):.1f} s"


def _now(runs: list[RunRow]) -> Text:
    """What a job is at: where it runs, or that it waits for a retry."""
    for run in runs:
        if run.status is Status.RUNNING:
            return Text(f"on {run.worker}", _COLOURS[run.status])
    queued = any(run.status is Status.QUEUED for run in runs)
    return Text("queued", _COLOURS[Status.QUEUED]) if queued else Text()


def _workers_table(snapshot: Snapshot) -> Table:
    table = _table("worker", "state", "heartbeat", "running")
    for worker in snapshot.workers:
        held = [f"{run.job_name} ({run.id})" for run in snapshot.running if run.worker == worker.name]
        table.add_row(worker.name, _state(worker), _heartbeat(worker), ", ".join(held))
    return table


def _state(worker: WorkerRow) -> Text:
    match worker.end_reason:
        case "lost":
            return Text("lost", _COLOURS[Status.LOST])
        case str(reason):
            return Text(reason, "dim")
    return Text("silent", "bold yellow") if worker.is_silent else Text("alive", "green")


def _heartbeat(worker: WorkerRow) -> str:
    if worker.end_reason is not None:
        return ""
    age = f"{worker.silence:.1f} s ago"
    return f"{age} (lease {worker.lease:.0f} s)" if worker.is_silent else age


def _table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold dim")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    return table
