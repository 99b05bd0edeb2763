"""How the demo went: the history in counts, the story of the lost run, the checks, and where to go next."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pgcron_runner.cli.demo.acts import Told
from pgcron_runner.cli.demo.screen import Screen
from pgcron_runner.model import Status
from pgcron_runner.promises import (
    Verdict,
    check_attempts,
    check_commands,
    check_nothing_open,
    check_occurrences,
    check_overlaps,
    check_sql_work,
)

_NEXT = (
    ("pgcron-runner dev", "a Postgres that stays, and a worker"),
    ("pgcron-runner job add --help", "add a job without writing SQL"),
    ("pgcron-runner next '0 3 * * *' --timezone UTC", "when will that be?"),
    ("pgcron-runner migrate --dsn postgresql://host/name", "the schema, in yours"),
    ("pgcron-runner worker --dsn postgresql://host/name", "a worker, on any host"),
)


def judge(told: Told) -> list[Verdict]:
    """Every check that rests on the database and on the commands' own marks."""
    runs = told.last.runs
    workers = [(worker.name, worker.end_reason) for worker in told.last.workers]
    return [
        check_occurrences(told.jobs, runs),
        check_attempts(told.jobs, runs),
        check_commands(runs, told.marks),
        check_overlaps(told.jobs, told.marks),
        check_sql_work(runs, told.reports),
        check_nothing_open(runs, workers),
    ]


def print_report(screen: Screen, told: Told, verdicts: Sequence[Verdict]) -> None:
    """All that is said after the last act."""
    console = screen.console
    _heading(console, "The history, as select from pgcron.runs tells it")
    console.print(_counts(told))
    _heading(console, f"The run that {told.killed} lost when it was killed ({told.killed_at:.1f} s)")
    console.print(_story(screen, told))
    _heading(console, "Checked against the schedules and what the commands themselves wrote down")
    console.print(_checks(verdicts))
    _heading(console, "Where to go next")
    console.print(_next_steps())


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, "bold"))


def _counts(told: Told) -> Table:
    runs = told.last.runs
    statuses = [status for status in Status if any(run.status is status for run in runs)]
    table = _table()
    table.add_column("job")
    for status in statuses:
        table.add_column(status, justify="right")
    for job in told.last.jobs:
        counts = Counter(run.status for run in told.last.runs_of(job.name))
        table.add_row(job.name, *(str(counts[status] or "-") for status in statuses))
    return table


def _story(screen: Screen, told: Told) -> Table:
    def at(instant: datetime | None) -> str:
        return "" if instant is None else f"{screen.since(instant):.1f} s"

    table = _table()
    for column in ("run", "attempt", "worker", "began", "ended", "status", ""):
        table.add_column(column, justify="right" if column in ("run", "attempt", "began", "ended") else "left")
    for run in told.last.runs_of("backup"):
        made = [part for part, run_id in told.parts if run_id == run.id]
        table.add_row(
            str(run.id), str(run.attempt), run.worker, at(run.started_at), at(run.finished_at), run.status, _parts(made)
        )
    return table


def _parts(made: Sequence[int]) -> str:
    """As its own file tells."""
    return f"made parts {made[0]} to {made[-1]}" if made else "made no part"


def _checks(verdicts: Sequence[Verdict]) -> Table:
    kept, broken = ("✔", "✘") if _can_print("✔✘") else ("ok", "BROKEN")
    table = _table(header=False)
    for _ in range(3):
        table.add_column()
    for verdict in verdicts:
        mark = Text(kept, "bold green") if verdict.kept else Text(broken, "bold red")
        table.add_row(mark, verdict.promise, Text(verdict.figures, "dim"))
        for fault in verdict.faults:
            table.add_row("", Text(fault, "red"))
    return table


def _next_steps() -> Table:
    table = _table(header=False)
    for _ in range(2):
        table.add_column()
    for command, words in _NEXT:
        table.add_row(Text(command, "cyan"), Text(words, "dim"))
    return table


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _table(*, header: bool = True) -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold dim", show_header=header)
