"""`pgcron-runner job history`: how a job has done, time by time and in figures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from pgcron_runner.cli.history import Occurrence, Spread, Summary, fold, summarize
from pgcron_runner.cli.jobs import Name, find_job
from pgcron_runner.cli.options import AsJson, Dsn, IdsOnly, examples, option, parse_since
from pgcron_runner.cli.output import (
    Cell,
    Column,
    Styled,
    local,
    note,
    plural,
    print_facts,
    print_json,
    print_marks,
    print_names,
    print_table,
    relative,
    say,
    span,
    status_cell,
    style_of,
    to_json,
    zone_of,
)
from pgcron_runner.cli.session import with_database
from pgcron_runner.model import Status
from pgcron_runner.store import catalog
from pgcron_runner.store.catalog import Job, ListedRun

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

# Attempts at one occurrence; of those of more, the oldest occurrences are left out.
_ATTEMPTS = 10
_BAR = 20
# As pytest has them: a point is well.
_MARKS = {
    Status.QUEUED: "q",
    Status.RUNNING: "r",
    Status.SUCCEEDED: ".",
    Status.FAILED: "F",
    Status.TIMED_OUT: "T",
    Status.LOST: "L",
    Status.CANCELLED: "c",
    Status.INTERRUPTED: "i",
    Status.SKIPPED: "s",
    Status.MISSED: "m",
}
_COLUMNS = (
    Column("SCHEDULED FOR"),
    Column("STATUS"),
    Column("LATE", right=True),
    Column("TOOK", right=True),
    Column("", optional=3),
    Column("TRIES", right=True, optional=2),
    Column("RUN", right=True),
    Column("REMARK", flexible=True, optional=1),
)


def register(app: typer.Typer) -> None:
    """Adds the command to `pgcron-runner job`."""
    made = examples("pgcron-runner job history backup", "pgcron-runner job history backup --since 30d --limit 500")
    app.command(epilog=made)(history)


def history(
    name: Name,
    since: Annotated[
        str | None, option("--since", "INSTANT", "What was made since then, or in the last 2h, 7d.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At most so many times.")] = 30,
    ids_only: IdsOnly = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Show how a job has done: how often it succeeded, how long it took, how late it was, and each of its times.

    Attempts at the same time are one line. Every single run is in: runs list JOB.
    """

    async def read(connection: Connection) -> tuple[Job, list[ListedRun], datetime]:
        job, now = await find_job(connection, name), await catalog.read_clock(connection)
        start = None if since is None else parse_since(since, now=now, zone=zone_of(job.timezone))
        runs = await catalog.list_job_runs(connection, job.id, job_name=job.name, limit=limit * _ATTEMPTS, since=start)
        return job, runs, now

    job, runs, now = with_database(dsn, read)
    found = fold(runs, now)[:limit]
    summary = summarize(found)
    if as_json:
        occurrences = {"occurrences": to_json(found)}
        print_json({"job": job.name, "timezone": job.timezone, "summary": to_json(summary)} | occurrences)
    elif ids_only:
        print_names(occurrence.run_id for occurrence in found)
    elif found:
        _print(job, found, summary, now)
    else:
        note("It has not run since then." if since else "It has not run yet.")


def _print(job: Job, found: Sequence[Occurrence], summary: Summary, now: datetime) -> None:
    zone = zone_of(job.timezone)
    first = found[-1].scheduled_for
    print_facts(
        [
            ("job", Styled(job.name, "bold")),
            ("since", f"{local(first, zone)}  {relative(first, now)}, {plural(summary.occurrences, 'time')}"),
            ("succeeded", _success(summary)),
            ("took", _spread(summary.took)),
            ("late", _spread(summary.late)),
        ]
    )
    say()
    print_marks([Styled(_MARKS[Status(o.status)], style_of(o.status)) for o in reversed(found)])
    letters = {f"{_MARKS[Status(o.status)]} {o.status}": None for o in found if o.status != Status.SUCCEEDED}
    if letters:
        say(f"oldest first; {', '.join(sorted(letters))}")
    say()
    longest = max((o.took for o in found if o.took is not None), default=timedelta(0))
    print_table(_COLUMNS, [_row(occurrence, longest, zone_of(job.timezone)) for occurrence in found])


def _success(summary: Summary) -> Cell:
    others = {status: count for status, count in summary.statuses.items() if status != Status.SUCCEEDED}
    more = "".join(f", {count} {status}" for status, count in others.items())
    if summary.success is None:
        return f"nothing was tried{more}"
    text = f"{summary.succeeded} of {summary.tried}, {summary.success:.0%}{more}"
    return text if summary.success == 1 else Styled(text, "red" if summary.success < 0.5 else "yellow")


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    return f"p50 {span(spread.p50)}, p95 {span(spread.p95)}, at most {span(spread.longest)}"


def _row(occurrence: Occurrence, longest: timedelta, zone: ZoneInfo) -> list[Cell]:
    return [
        local(occurrence.scheduled_for, zone),
        status_cell(occurrence.status),
        "-" if occurrence.late is None else span(occurrence.late),
        "-" if occurrence.took is None else span(occurrence.took),
        Styled(_bar(occurrence.took, longest), style_of(occurrence.status)),
        str(occurrence.attempts),
        str(occurrence.run_id),
        occurrence.remark,
    ]


def _bar(took: timedelta | None, longest: timedelta) -> str:
    """How long it took beside the longest one."""
    if took is None or not longest:
        return ""
    block = "▇" if (sys.stdout.encoding or "").lower().startswith("utf") else "="
    return block * max(round(_BAR * (took / longest)), 1)
