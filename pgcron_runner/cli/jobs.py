"""`pgcron-runner job list|show|pause|resume|run|remove`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgcron_runner.cli.follow import follow_run
from pgcron_runner.cli.options import AsJson, Dsn, Unchanged, examples, parse_instant, parse_object
from pgcron_runner.cli.output import (
    Cell,
    Column,
    Styled,
    clean,
    local,
    note,
    plural,
    print_facts,
    print_heading,
    print_json,
    print_table,
    relative,
    say,
    status_cell,
    to_json,
    utc,
    zone_of,
)
from pgcron_runner.cli.runs import RUN_COLUMNS, run_row
from pgcron_runner.cli.session import with_database
from pgcron_runner.cli.upcoming import next_run_at, print_slots, slots_of
from pgcron_runner.durations import format_duration
from pgcron_runner.errors import InvalidInput, NotFound
from pgcron_runner.model import Kind
from pgcron_runner.store import catalog
from pgcron_runner.store.catalog import Job, ListedJob, ListedRun

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

_LIMIT = 200
_NEXT, _LAST = 5, 10
_COLUMNS = (
    Column("NAME", flexible=True),
    Column("KIND"),
    Column("SCHEDULE", flexible=True),
    Column("ZONE", flexible=True),
    Column("NEXT"),
    Column("AT", wide=True),
    Column("LAST"),
    Column("ENDED", wide=True),
    Column("QUEUE", wide=True, flexible=True),
    Column("PROBLEM", wide=True, flexible=True),
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The job's name.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Adds these commands to `pgcron-runner job`."""
    app.command(name="list", epilog=examples("pgcron-runner job list", "pgcron-runner job list --problem --json"))(
        list_
    )
    app.command(epilog=examples("pgcron-runner job show nightly-report"))(show)
    app.command(
        epilog=examples("pgcron-runner job pause backup", "pgcron-runner job pause backup --until 2027-01-31T09:00")
    )(pause)
    app.command(epilog=examples("pgcron-runner job resume backup"))(resume)
    app.command(
        epilog=examples(
            "pgcron-runner job run backup", """pgcron-runner job run report --args '{"month": "2027-01"}' --wait"""
        )
    )(run)
    app.command(epilog=examples("pgcron-runner job remove old-report --yes"))(remove)


def list_(
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="NAME", help="Jobs of this queue.", show_default=False)
    ] = None,
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="WORD", help="Jobs with this tag.", show_default=False)
    ] = None,
    kind: Annotated[Kind | None, typer.Option("--kind", help="Jobs of this kind.", show_default=False)] = None,
    problem: Annotated[bool, typer.Option("--problem", help="Jobs that cannot be scheduled, and why.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help=f"However many there are; else the first {_LIMIT}.")
    ] = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """List jobs by name: when they are due, how they went, what is wrong with them."""

    async def read(connection: Connection) -> tuple[list[ListedJob], datetime]:
        limit = None if everything else _LIMIT + 1
        jobs = await catalog.list_jobs(
            connection, limit=limit, queue=queue, tag=tag, kind=kind.value if kind else None, problem=problem
        )
        return jobs, await catalog.read_clock(connection)

    jobs, now = with_database(dsn, read)
    more = not everything and len(jobs) > _LIMIT
    shown = [replace(job, next_run_at=next_run_at(job, now)) for job in (jobs[:_LIMIT] if more else jobs)]
    if as_json:
        print_json(shown)
    elif shown and problem:
        print_table((Column("NAME"), Column("PROBLEM")), [(job.name, job.problem or "") for job in shown])
    elif shown:
        print_table(_COLUMNS, [_row(job, now) for job in shown])
    else:
        note(
            "There is no such job."
            if problem or queue or tag or kind
            else "There are no jobs. See: pgcron-runner job add --help"
        )
    if more:
        note(f"These are the first {_LIMIT}. --all shows all, --queue, --tag and --kind show fewer.")


def _row(job: ListedJob, now: datetime) -> Sequence[Cell]:
    zone = zone_of(job.timezone)
    return (
        job.name,
        job.kind,
        " ; ".join(line.strip() for line in job.schedule.splitlines() if line.strip()),
        job.timezone,
        _next(job, now),
        local(job.next_run_at, zone) if job.next_run_at else "-",
        status_cell(job.last_status),
        relative(job.last_at, now) if job.last_at else "-",
        job.queue,
        job.problem or "",
    )


def _next(job: ListedJob | Job, now: datetime) -> Cell:
    """When it is due next, or the reason why it is not."""
    if job.problem:
        return status_cell("problem")
    if not job.enabled:
        return status_cell("disabled")
    if job.paused_until is not None and job.paused_until > now:
        return status_cell("paused")
    if job.next_run_at is None:
        return "never"
    if job.next_run_at < now - timedelta(minutes=1):
        return Styled(f"due {relative(job.next_run_at, now)}", "red")
    return relative(max(job.next_run_at, now), now)


def show(name: Name, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """Show a job: its definition, its next times and its last runs."""

    async def read(connection: Connection) -> tuple[Job, list[ListedRun], datetime]:
        job = await _find(connection, name)
        last = await catalog.list_job_runs(connection, job.id, job_name=job.name, limit=_LAST)
        return job, last, await catalog.read_clock(connection)

    job, last, now = with_database(dsn, read)
    slots = slots_of(job, now, _NEXT)
    job = replace(job, next_run_at=slots[0].at if slots else None)
    if as_json:
        print_json(to_json(job) | {"next_times": [to_json(slot.at) for slot in slots], "last_runs": to_json(last)})
        return
    print_facts(_facts(job, now))
    say()
    zone = zone_of(job.timezone)
    if slots:
        print_heading("Next times")
        print_slots(slots, zone, now)
        say()
    print_heading("Last runs")
    if last:
        print_table(RUN_COLUMNS, [run_row(run, now, with_job=False) for run in last])
    else:
        say("It has not run yet.")


async def _find(connection: Connection, name: str) -> Job:
    job = await catalog.read_job(connection, name)
    if job is None:
        raise NotFound(f"There is no job named {name!r}. See: pgcron-runner job list")
    return job


# What a new job has; anything else is worth showing.
_USUAL: dict[str, Any] = {
    "args": {},
    "priority": 0,
    "jitter": timedelta(0),
    "timeout": None,
    "kill_grace": timedelta(seconds=10),
    "catch_up": "latest",
    "catch_up_limit": 100,
    "overlap": None,
    "max_attempts": 1,
    "output_limit_kb": 64,
    "env": {},
    "env_from": [],
    "history": "all",
    "tags": [],
    "dst_gap": "run_after",
    "dst_repeat": "first",
    "queued": 0,
    "running": 0,
}
_SHOWN_ELSEWHERE = {
    "name",
    "enabled",
    "problem",
    "planned",
    "anchored_at",
    "next_run_at",
    "created_at",
    "updated_at",
    "id",
}
_RETRY_ONLY = {"retry_delay", "retry_backoff", "retry_max_delay"}


def _facts(job: Job, now: datetime) -> list[tuple[str, Cell]]:
    zone = zone_of(job.timezone)
    facts: list[tuple[str, Cell]] = [("name", Styled(job.name, "bold")), ("state", _state(job, now))]
    if job.problem:
        facts.append(("problem", Styled(job.problem, "red")))
    for field in fields(job):
        value = getattr(job, field.name)
        if field.name in _SHOWN_ELSEWHERE or value is None or (field.name in _USUAL and value == _USUAL[field.name]):
            continue
        if field.name in _RETRY_ONLY and job.max_attempts == 1:
            continue
        facts.append((field.name, _value(value, zone)))
    facts.append(("id", str(job.id)))
    facts.append(("created_at", f"{local(job.created_at, zone)}  {utc(job.created_at)}"))
    facts.append(("updated_at", f"{local(job.updated_at, zone)}  {utc(job.updated_at)}"))
    return facts


def _state(job: Job, now: datetime) -> Cell:
    text = _next(job, now)
    return text if isinstance(text, Styled) or text == "never" else f"next {text}"


def _value(value: Any, zone: Any) -> str:
    match value:
        case datetime():
            return f"{local(value, zone)}  {utc(value)}"
        case timedelta():
            return format_duration(value)
        case list():
            return ", ".join(map(str, value))
        case dict():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)


def pause(
    name: Name,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="INSTANT",
            help="Go on by itself then; without an offset it is in the job's zone.",
            show_default=False,
        ),
    ] = None,
    dsn: Dsn = None,
) -> None:
    """Start nothing more on schedule, until a time or until resume. What runs goes on; what is queued is cancelled."""

    async def change(connection: Connection) -> tuple[Job, Job]:
        before = await _find(connection, name)
        instant = None if until is None else parse_instant(until, field="until", zone=zone_of(before.timezone))
        if instant is not None and instant <= await catalog.read_clock(connection):
            raise InvalidInput("until", until, "has passed already", example="2030-01-31T09:00")
        await catalog.pause_job(connection, name, until=instant)
        return before, await _find(connection, name)

    before, after = with_database(dsn, change)
    if not after.enabled:
        still = "" if before.enabled else "still "
        say(f"Job {clean(name)} is {still}disabled. Resume it: pgcron-runner job resume {shlex.quote(name)}")
    elif after.paused_until is not None:
        there = local(after.paused_until, zone_of(after.timezone))
        say(f"Job {clean(name)} is paused until {there} ({utc(after.paused_until)}).")
    _say_what_was_live(before)


def _say_what_was_live(job: Job) -> None:
    if job.queued:
        say(f"{plural(job.queued, 'queued run')} cancelled.")
    if job.running:
        say(f"{plural(job.running, 'run')} still running; stop with: pgcron-runner runs cancel ID")


def resume(name: Name, dsn: Dsn = None) -> None:
    """Go on after a pause. It starts from now; what fell due meanwhile is not made up for."""

    async def change(connection: Connection) -> tuple[Job, datetime]:
        if not await catalog.resume_job(connection, name):
            raise NotFound(f"There is no job named {name!r}. See: pgcron-runner job list")
        return await _find(connection, name), await catalog.read_clock(connection)

    job, now = with_database(dsn, change)
    following = next_run_at(job, now)
    when = (
        f"next at {local(following, zone_of(job.timezone))}, {relative(following, now)}"
        if following
        else "it is never due by itself"
    )
    say(f"Job {clean(name)} is enabled: {when}.")


def run(
    name: Name,
    args: Annotated[
        str | None,
        typer.Option("--args", metavar="JSON", help="A JSON object in place of the job's args.", show_default=False),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end: exit code 0 if it succeeded, else 1.")
    ] = False,
    dsn: Dsn = None,
) -> None:
    """Run a job now, whatever its schedule says. Prints the run's id."""
    text = None if args is None else json.dumps(parse_object(args, field="args"))

    async def enqueue(connection: Connection) -> bool:
        run_id = await catalog.enqueue_run(connection, name, args=text)
        if run_id is None:
            raise NotFound(f"There is no job named {name!r}. See: pgcron-runner job list")
        say(f"Run {run_id} of job {clean(name)} is queued.")
        return not wait or await follow_run(connection, run_id)

    if not with_database(dsn, enqueue):
        raise typer.Exit(1)


def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dsn: Dsn = None,
) -> None:
    """Delete a job. Its history stays; what is queued is cancelled, what runs goes on."""

    async def delete(connection: Connection) -> Job:
        job = await _find(connection, name)
        if not yes:
            _ask(job)
        if not await catalog.remove_job(connection, name):
            raise NotFound(f"There is no job named {name!r} any more.")
        return job

    job = with_database(dsn, delete)
    say(f"Removed job {clean(name)}. Its history stays: pgcron-runner runs list {shlex.quote(name)}")
    _say_what_was_live(job)


def _ask(job: Job) -> None:
    if not sys.stdin.isatty():
        raise Unchanged("Nobody is there to be asked. Say --yes to remove it.")
    if not typer.confirm(f"Remove job {clean(job.name)} ({job.kind}, {clean(job.schedule)})?"):
        raise Unchanged("Nothing was removed.")
