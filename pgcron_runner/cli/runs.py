"""`pgcron-runner runs list|show|logs|cancel|retry`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from pgcron_runner.cli.follow import follow_output, follow_run
from pgcron_runner.cli.options import (
    AsJson,
    Dsn,
    IdsOnly,
    Quiet,
    Unchanged,
    examples,
    job_argument,
    option,
    parse_since,
)
from pgcron_runner.cli.output import (
    Cell,
    Column,
    in_progress,
    local,
    note,
    print_done,
    print_facts,
    print_heading,
    print_json,
    print_names,
    print_table,
    relative,
    say,
    size,
    span,
    status_cell,
    to_json,
    utc,
    zone_of,
)
from pgcron_runner.cli.session import with_database
from pgcron_runner.errors import NotFound
from pgcron_runner.model import Status
from pgcron_runner.store import catalog
from pgcron_runner.store.catalog import ListedRun, Run

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

_ATTEMPTS = 100
RUN_COLUMNS = (
    Column("ID", right=True),
    Column("STATUS"),
    Column("SCHEDULED FOR"),
    Column("UTC", optional=5),
    Column("WHY", optional=4),
    Column("TRY", right=True, optional=3),
    Column("STARTED", optional=2),
    Column("TOOK", right=True),
    Column("REMARK", flexible=True, optional=1),
)
_COLUMNS = (RUN_COLUMNS[0], Column("JOB", flexible=True), *RUN_COLUMNS[1:])

RunId = Annotated[int, typer.Argument(metavar="ID", help="The run's id.", min=1, max=2**63 - 1, show_default=False)]


def register(app: typer.Typer) -> None:
    """Adds these commands to `pgcron-runner runs`."""
    app.command(
        name="list",
        epilog=examples(
            "pgcron-runner runs list",
            "pgcron-runner runs list backup --since 7d",
            "pgcron-runner runs list --status failed --json",
        ),
    )(list_)
    app.command(epilog=examples("pgcron-runner runs show 4711"))(show)
    app.command(epilog=examples("pgcron-runner runs logs 4711", "pgcron-runner runs logs 4711 --follow"))(logs)
    app.command(epilog=examples("pgcron-runner runs cancel 4711", "pgcron-runner runs cancel 4711 --wait"))(cancel)
    app.command(epilog=examples("pgcron-runner runs retry 4711", "pgcron-runner runs retry 4711 --wait"))(retry)


def list_(
    job: Annotated[str | None, job_argument("Runs of this job only.")] = None,
    status: Annotated[Status | None, typer.Option("--status", help="Runs in this state.", show_default=False)] = None,
    since: Annotated[
        str | None,
        option("--since", "INSTANT", "Runs that were made since then, or in the last 2h, 7d."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="At most so many.")] = 50,
    ids_only: IdsOnly = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """List runs, newest first: what ran, what did not, and why."""

    async def read(connection: Connection) -> tuple[list[ListedRun], datetime]:
        now = await catalog.read_clock(connection)
        state = None if status is None else status.value
        if job is None:
            start = None if since is None else parse_since(since, now=now, zone=None)
            return await catalog.list_runs(connection, limit=limit, status=state, since=start), now
        known = await catalog.read_job(connection, job)
        start = None if since is None else parse_since(since, now=now, zone=zone_of(known.timezone) if known else None)
        found = await catalog.list_job_runs(
            connection, known.id if known else None, job_name=job, limit=limit, status=state, since=start
        )
        if known is None and not found and status is None and since is None:
            raise NotFound(f"There is no job named {job!r}, and no run of one. See: pgcron-runner job list")
        return found, now

    found, now = with_database(dsn, read)
    if as_json:
        print_json(found)
    elif ids_only:
        print_names(run.id for run in found)
    elif found:
        print_table(RUN_COLUMNS if job else _COLUMNS, [run_row(run, now, with_job=job is None) for run in found])
    else:
        note("There are no such runs." if status or since else "There are no runs yet.")
    if len(found) == limit and not as_json and not ids_only:
        note(f"These are the newest {limit}. --limit shows more.")


def run_row(run: ListedRun, now: datetime, *, with_job: bool) -> Sequence[Cell]:
    """A line for RUN_COLUMNS; `with_job` puts the job's name second."""
    return (
        str(run.id),
        *([run.job_name] if with_job else []),
        status_cell(run.status),
        local(run.scheduled_for, zone_of(run.timezone)),
        utc(run.scheduled_for),
        run.trigger,
        str(run.attempt),
        relative(run.started_at, now) if run.started_at else "-",
        _took(run, now),
        _why(run),
    )


def _took(run: ListedRun, now: datetime) -> str:
    return span((run.finished_at or now) - run.started_at) if run.started_at else "-"


def _why(run: ListedRun) -> str:
    """The shortest reason there is for how it ended, or how far it is."""
    if run.status == Status.RUNNING:
        return in_progress(run.progress)
    if run.reason:
        return run.reason
    if run.error:
        return run.error.splitlines()[0]
    return f"exit code {run.exit_code}" if run.exit_code else ""


def show(run_id: RunId, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """Show all facts of a run, and the attempts at the same time of its job."""

    async def read(connection: Connection) -> tuple[Run, list[ListedRun], datetime]:
        run = await _find(connection, run_id)
        attempts = await catalog.list_job_runs(
            connection, run.job_id, job_name=run.job_name, limit=_ATTEMPTS, scheduled_for=run.scheduled_for
        )
        return run, sorted(attempts, key=lambda attempt: attempt.attempt), await catalog.read_clock(connection)

    run, attempts, now = with_database(dsn, read)
    if as_json:
        print_json(to_json(run) | {"attempts": to_json(attempts)})
        return
    print_facts(_facts(run, now))
    if len(attempts) > 1:
        say()
        print_heading("Attempts")
        print_table(RUN_COLUMNS, [run_row(attempt, now, with_job=False) for attempt in attempts])


async def _find(connection: Connection, run_id: int) -> Run:
    run = await catalog.read_run(connection, run_id)
    if run is None:
        raise NotFound(f"There is no run {run_id}. See: pgcron-runner runs list")
    return run


_USUAL = {"backfill": False, "priority": 0}
_SHOWN_ELSEWHERE = {
    "id",
    "job_id",
    "status",
    "timezone",
    "max_attempts",
    "attempt",
    "output_bytes",
    "output_truncated",
    "worker",
}


def _facts(run: Run, now: datetime) -> list[tuple[str, Cell]]:
    zone = zone_of(run.timezone)
    attempt = f"{run.attempt} of {run.max_attempts}" if run.max_attempts else str(run.attempt)
    facts: list[tuple[str, Cell]] = [("run", str(run.id)), ("status", status_cell(run.status))]
    for field in fields(run):
        value = getattr(run, field.name)
        if field.name in _SHOWN_ELSEWHERE or value is None or value == _USUAL.get(field.name):
            continue
        if field.name == "worker_id" and run.worker is not None:
            facts.append(("worker", run.worker))
        facts.append((field.name, in_progress(value) if field.name == "progress" else _value(value, zone, now)))
    facts.insert(3, ("attempt", attempt))
    if run.started_at:
        facts.append(("took" if run.finished_at else "runs for", _took(run, now)))
    facts.append(("output", _output(run)))
    return facts


def _output(run: Run) -> str:
    if not run.output_bytes:
        return "none"
    cut = ", the middle is left out" if run.output_truncated else ""
    return f"{size(run.output_bytes)}{cut}: pgcron-runner runs logs {run.id}"


def _value(value: Any, zone: ZoneInfo, now: datetime) -> str:
    match value:
        case datetime():
            return f"{local(value, zone)}  {utc(value)}  {relative(value, now)}"
        case dict() | list() | bool():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)


def logs(
    run_id: RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="As it was kept, with what could command a terminal.")] = False,
    dsn: Dsn = None,
) -> None:
    """Print what a run has printed. Where it printed too much, the middle is left out."""

    async def read(connection: Connection) -> None:
        await _find(connection, run_id)
        await follow_output(connection, run_id, follow=follow, raw=raw)

    with_database(dsn, read)


def cancel(
    run_id: RunId,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Cancel a run: a queued one at once, a running one is stopped by its worker. A final one stays as it is."""

    async def change(connection: Connection) -> bool:
        before = await catalog.cancel_run(connection, run_id, reason="cancelled by hand")
        match before:
            case None:
                raise NotFound(f"There is no run {run_id}. See: pgcron-runner runs list")
            case Status.QUEUED:
                said, is_over = f"Run {run_id} was queued and is cancelled.", True
            case Status.RUNNING:
                said, is_over = f"Run {run_id} is running; its worker has been asked to stop it.", False
            case _:
                raise Unchanged(f"Run {run_id} had already ended as {before}. Nothing was changed.")
        print_done(said, {"id": run_id, "was": before, "cancelled": is_over}, as_json=as_json, quiet=quiet)
        return (
            is_over or not wait or await follow_run(connection, run_id, until=Status.CANCELLED, quiet=quiet or as_json)
        )

    if not with_database(dsn, change):
        raise typer.Exit(1)


def retry(
    run_id: RunId,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Try again what has failed, was skipped or missed: one more attempt, whatever max_attempts says.

    It has the arguments of that run, and finds what it has saved. The same occurrence, so the same nominal time.
    """

    async def change(connection: Connection) -> bool:
        made = await catalog.retry_run(connection, run_id)
        if made is None:
            raise Unchanged(await _why_no_retry(connection, run_id))
        new_id, attempt = made
        done = f"Queued run {new_id}: attempt {attempt} of what run {run_id} was to do."
        print_done(done, {"id": new_id, "attempt": attempt, "retry_of": run_id}, as_json=as_json, quiet=quiet)
        return not wait or await follow_run(connection, new_id, quiet=quiet or as_json)

    if not with_database(dsn, change):
        raise typer.Exit(1)


async def _why_no_retry(connection: Connection, run_id: int) -> str:
    run = await _find(connection, run_id)
    if run.job_id is None:
        return f"Run {run_id} is of the job {run.job_name!r}, which was removed. There is nothing left to run."
    if not Status(run.status).is_final:
        return f"Run {run_id} is {run.status}. To stop it: pgcron-runner runs cancel {run_id}"
    if run.status == Status.SUCCEEDED:
        return (
            f"Run {run_id} has succeeded. To run the job once more: pgcron-runner job run {shlex.quote(run.job_name)}"
        )
    return f"A later attempt at what run {run_id} was to do is queued, runs or has succeeded. Nothing was changed."
