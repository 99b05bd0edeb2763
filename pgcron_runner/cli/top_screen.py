"""What `top` shows of a snapshot: its sections, and which of their rows fit on a screen. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pgcron_runner.cli.output import (
    Cell,
    Column,
    Styled,
    clean,
    in_progress,
    local,
    plural,
    relative,
    span,
    status_cell,
    table_lines,
    utc,
    zone_of,
)
from pgcron_runner.cli.queues import counted, state_cell

if TYPE_CHECKING:
    from pgcron_runner.store.catalog import ListedWorker
    from pgcron_runner.store.catalog_queues import Queue
    from pgcron_runner.store.catalog_top import DueJob, FailingJob, RunningRun, Snapshot

# A run that has used so much of its timeout is worth a look.
_NEARLY_TIMED_OUT = 0.8
_A_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Section:
    """A table whose first title says what it is and how many there are."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


def sections(snapshot: Snapshot) -> list[Section]:
    """All there is, in the order in which it is shown."""
    now = snapshot.pulse.now
    running = snapshot.running[0].total if snapshot.running else 0
    failing = snapshot.failing[0].total if snapshot.failing else 0
    return [
        Section(
            (
                Column(f"RUNNING {running}", flexible=True),
                Column("PROGRESS", flexible=True),
                Column("FOR", right=True),
                Column("TRY", right=True),
                Column("RUN", right=True, optional=1),
                Column("QUEUE", flexible=True, optional=3),
                Column("WORKER", flexible=True, optional=2),
            ),
            [_running(run, now) for run in snapshot.running],
        ),
        Section(
            (
                Column(f"FAILING {failing}", flexible=True),
                Column("WHAT"),
                Column("TIMES", right=True),
                Column("SINCE"),
                Column("TAKEN BY", flexible=True, optional=2),
                Column("ERROR", flexible=True, optional=1),
            ),
            [_failing(job, now) for job in snapshot.failing],
        ),
        Section(
            (
                Column("DUE NEXT", flexible=True),
                Column("WHEN"),
                Column("AT"),
                Column("KIND", optional=1),
                Column("QUEUE", flexible=True, optional=2),
            ),
            [_due(job, now) for job in snapshot.due],
        ),
        Section(
            (
                Column(f"QUEUES {len(snapshot.queues)}", flexible=True),
                Column("STATE"),
                Column("DUE", right=True),
                Column("OLDEST"),
                Column("LATER", right=True),
                Column("RUNNING", right=True),
                Column("LIMIT", right=True),
                Column("SLOTS", right=True),
            ),
            [_queue(queue, now) for queue in snapshot.queues],
        ),
        Section(
            (
                Column(f"WORKERS {len(snapshot.workers)}", flexible=True),
                Column("STATE"),
                Column("BUSY", right=True),
                Column("HEARTBEAT"),
                Column("QUEUES", flexible=True),
                Column("HOST", flexible=True, optional=1),
            ),
            [_worker(worker, now) for worker in snapshot.workers],
        ),
    ]


def summary(snapshot: Snapshot) -> Cell:
    """How it is, in one line."""
    pulse = snapshot.pulse
    alive = [worker for worker in snapshot.workers if worker.state in ("alive", "stopping")]
    busy, slots = sum(worker.running for worker in alive), sum(worker.slots for worker in alive)
    due, later = sum(queue.due for queue in snapshot.queues), sum(queue.later for queue in snapshot.queues)
    facts = (
        f"{plural(len(alive), 'worker')}, {busy} of {plural(slots, 'slot')} busy",
        f"{due} due, {later} later",
        f"{pulse.failed_last_hour} failed in the last hour",
    )
    text = "; ".join(facts)
    if pulse.paused:
        return Styled(f"PAUSED: nothing new is started. {text}", "yellow")
    return text if alive else Styled(text, "red")


def draw(snapshot: Snapshot, *, place: str, trouble: str, width: int, height: int) -> list[Any]:
    """The lines of a screen, no more and no wider than fit. `trouble`: why the snapshot is an old one."""
    # Each has a blank line, its titles, and at least one row; where there is no room for all, the last are left out.
    all_sections = sections(snapshot)[: max(height - 2, 0) // 3]
    lines = [_title(place, snapshot.pulse.now, width), _cut(_trouble(trouble) if trouble else summary(snapshot), width)]
    room = height - len(lines) - 2 * len(all_sections)
    shares = share_out([max(len(section.rows), 1) for section in all_sections], room)
    for section, share in zip(all_sections, shares, strict=True):
        titles, *rows = table_lines(section.columns, section.rows[:share], width)
        lines += [_cut("", width), titles, *(rows or [_cut(Styled("none", "dim"), width)])]
    return lines[:height]


def share_out(wanted: Sequence[int], room: int) -> list[int]:
    """How many rows each gets: one more in turn, those on top first, until all have theirs or no room is left."""
    shares = [0] * len(wanted)
    while room > 0 and shares != list(wanted):
        for n, most in enumerate(wanted):
            if shares[n] < most and room > 0:
                shares[n] += 1
                room -= 1
    return shares


def _title(place: str, now: datetime, width: int) -> Any:
    from rich.text import Text

    left, right = clean(place), f"{utc(now)}  q: quit"
    blanks = width - Text(left).cell_len - len(right)
    return _cut(Styled(f"{left}{' ' * blanks}{right}" if blanks > 1 else left, "bold"), width)


def _trouble(text: str) -> Cell:
    return Styled(text, "red")


def _cut(cell: Cell, width: int) -> Any:
    from rich.text import Text

    text, style = (cell.text, cell.style) if isinstance(cell, Styled) else (cell, "")
    line = Text(text, style)
    line.truncate(width, overflow="ellipsis")
    return line


def _running(run: RunningRun, now: datetime) -> list[Cell]:
    lasted = now - run.started_at
    late = run.timeout is not None and lasted > run.timeout * _NEARLY_TIMED_OUT
    tries = f"{run.attempt}/{run.max_attempts}" if run.max_attempts else str(run.attempt)
    return [
        run.job_name,
        Styled("stopping", "yellow") if run.cancel_requested_at else in_progress(run.progress),
        Styled(span(lasted), "yellow") if late else span(lasted),
        tries if run.attempt == 1 else Styled(tries, "yellow"),
        str(run.id),
        run.queue,
        run.worker or "-",
    ]


def _failing(job: FailingJob, now: datetime) -> list[Cell]:
    return [
        job.job_name,
        Styled(job.event.replace("_", " "), "red"),
        str(job.failures),
        relative(min(job.opened_at, now), now),
        job.acknowledged_by or "-",
        (job.error or "").partition("\n")[0],
    ]


def _due(job: DueJob, now: datetime) -> list[Cell]:
    overdue = job.planned and job.next_run_at < now - _A_MINUTE
    when = relative(job.next_run_at if overdue else max(job.next_run_at, now), now)
    return [
        job.name,
        Styled(f"due {when}", "red") if overdue else when,
        local(job.next_run_at, zone_of(job.timezone)),
        job.kind,
        job.queue,
    ]


def _queue(queue: Queue, now: datetime) -> list[Cell]:
    return [
        queue.name,
        state_cell(queue),
        counted(queue.due),
        relative(queue.due_since, now) if queue.due_since else "-",
        counted(queue.later),
        str(queue.running),
        str(queue.max_running or "none"),
        str(queue.slots) if queue.slots else Styled("0", "red"),
    ]


def _worker(worker: ListedWorker, now: datetime) -> list[Cell]:
    return [
        worker.name,
        status_cell(worker.state),
        f"{worker.running}/{worker.slots}",
        relative(min(worker.heartbeat_at, now), now),
        "all" if worker.queues is None else ",".join(worker.queues),
        worker.host,
    ]
