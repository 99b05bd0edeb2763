"""`pgcron-runner job pause|resume|run|remove`: what people do to jobs."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pgcron_runner.cli.follow import follow_run
from pgcron_runner.cli.jobs import Name, find_job
from pgcron_runner.cli.options import Dsn, Unchanged, examples, option, parse_instant, parse_object
from pgcron_runner.cli.output import clean, local, plural, relative, say, utc, zone_of
from pgcron_runner.cli.session import with_database
from pgcron_runner.cli.upcoming import next_run_at
from pgcron_runner.errors import InvalidInput, NotFound
from pgcron_runner.store import catalog
from pgcron_runner.store.catalog import Job

if TYPE_CHECKING:
    from pgcron_runner.database import Connection


def register(app: typer.Typer) -> None:
    """Adds these commands to `pgcron-runner job`."""
    paused = examples("pgcron-runner job pause backup", "pgcron-runner job pause backup --until 2027-01-31T09:00")
    report = """pgcron-runner job run report --args '{"month": "2027-01"}' --wait"""
    app.command(epilog=paused)(pause)
    app.command(epilog=examples("pgcron-runner job resume backup"))(resume)
    app.command(epilog=examples("pgcron-runner job run backup", report))(run)
    app.command(epilog=examples("pgcron-runner job remove old-report --yes"))(remove)


def pause(
    name: Name,
    until: Annotated[
        str | None,
        option("--until", "INSTANT", "Go on by itself then; without an offset it is in the job's zone."),
    ] = None,
    dsn: Dsn = None,
) -> None:
    """Start nothing more on schedule, until a time or until resume. What runs goes on; what is queued is cancelled."""

    async def change(connection: Connection) -> tuple[Job, Job]:
        before = await find_job(connection, name)
        instant = None if until is None else parse_instant(until, field="until", zone=zone_of(before.timezone))
        if instant is not None and instant <= await catalog.read_clock(connection):
            raise InvalidInput("until", until, "has passed already", example="2030-01-31T09:00")
        await catalog.pause_job(connection, name, until=instant)
        return before, await find_job(connection, name)

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
        return await find_job(connection, name), await catalog.read_clock(connection)

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
        option("--args", "JSON", "A JSON object in place of the job's args."),
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
        job = await find_job(connection, name)
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
