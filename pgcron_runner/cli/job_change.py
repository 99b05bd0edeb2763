"""`pgcron-runner job pause|resume|run|remove`: what people do to jobs."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pgcron_runner.cli.follow import follow_run
from pgcron_runner.cli.jobs import Name, find_job
from pgcron_runner.cli.options import (
    AsJson,
    Dsn,
    Quiet,
    Unchanged,
    WrongUse,
    examples,
    option,
    parse_instant,
    parse_object,
)
from pgcron_runner.cli.output import clean, local, plural, print_json, relative, say, span, utc, zone_of
from pgcron_runner.cli.session import with_database
from pgcron_runner.cli.upcoming import next_run_at
from pgcron_runner.errors import InvalidInput, NotFound
from pgcron_runner.model import Overlap, Status
from pgcron_runner.store import catalog
from pgcron_runner.store.catalog import Job

if TYPE_CHECKING:
    from pgcron_runner.database import Connection


def register(app: typer.Typer) -> None:
    """Adds these commands to `pgcron-runner job`."""
    paused = examples("pgcron-runner job pause backup", "pgcron-runner job pause backup --until 2027-01-31T09:00")
    report = """pgcron-runner job run report --args '{"month": "2027-01"}' --wait"""
    app.command(epilog=paused)(pause)
    app.command(epilog=examples("pgcron-runner job resume backup", "pgcron-runner job resume backup --catch-up"))(
        resume
    )
    app.command(
        epilog=examples("pgcron-runner job run backup", "pgcron-runner job run backup --overlap queue_one", report)
    )(run)
    app.command(epilog=examples("pgcron-runner job remove old-report --yes"))(remove)


def pause(
    name: Name,
    until: Annotated[
        str | None,
        option("--until", "INSTANT", "Go on by itself then; without an offset it is in the job's zone."),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
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
    if as_json:
        cancelled = {"cancelled": before.queued, "running": before.running}
        print_json({"name": name, "enabled": after.enabled, "paused_until": after.paused_until} | cancelled)
        return
    if quiet:
        return
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


def resume(
    name: Name,
    catch_up: Annotated[
        bool,
        typer.Option("--catch-up", help="Treat the pause as downtime: the job's own catch-up rule makes up for it."),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Go on after a pause. It starts from now; what fell due meanwhile is made up for only with --catch-up.

    That works as well when the pause has ended by itself.
    """

    async def change(connection: Connection) -> tuple[Job, datetime, _MadeUp | None]:
        async with connection.transaction():
            made_up = await _make_up(connection, name) if catch_up else None
            if not await catalog.resume_job(connection, name, catch_up=catch_up):
                raise NotFound(f"There is no job named {name!r}. See: pgcron-runner job list")
        return await find_job(connection, name), await catalog.read_clock(connection), made_up

    job, now, made_up = with_database(dsn, change)
    following = next_run_at(job, now)
    if as_json:
        print_json({"name": name, "enabled": True, "next_run_at": following, "caught_up": made_up})
        return
    if quiet:
        return
    when = (
        f"next at {local(following, zone_of(job.timezone))}, {relative(following, now)}"
        if following
        else "it is never due by itself"
    )
    say(f"Job {clean(name)} is enabled: {when}.")
    if catch_up:
        say(_what_was_made_up(job, made_up))


@dataclass(frozen=True, slots=True)
class _MadeUp:
    """What became of the times after `since`, up to `until`, during which a job was held."""

    since: datetime
    until: datetime
    queued: int
    skipped: int
    missed: int


async def _make_up(connection: Connection, name: str) -> _MadeUp | None:
    """Writes the rows of what fell due while a job was held; None where it was not. It stays locked."""
    # Here, because it brings the driver, which takes longer to load than most commands take to run.
    from pgcron_runner.planning import make_up
    from pgcron_runner.store import jobs

    held = await jobs.lock_held_job(connection, name)
    if held is None or held.since is None:
        return None
    plan = make_up(held.job, held.since, held.until, held.now)
    await jobs.insert_planned_runs(connection, [plan], now=held.now)
    if plan.replace:
        await jobs.request_replacement(connection, plan.replace)
    states = Counter(run.status for run in plan.runs)
    missed = sum(run.missed_count or 0 for run in plan.runs)
    return _MadeUp(held.since, held.until, states[Status.QUEUED], states[Status.SKIPPED], missed)


def _what_was_made_up(job: Job, made_up: _MadeUp | None) -> str:
    if made_up is None:
        return "It was not paused, so there is nothing to catch up."
    since, length = local(made_up.since, zone_of(job.timezone)), span(made_up.until - made_up.since)
    counts = ((made_up.queued, "queued"), (made_up.skipped, "skipped"), (made_up.missed, "missed"))
    told = ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"Its pause since {since}, {length}: {told or 'nothing fell due'}."


def run(
    name: Name,
    args: Annotated[
        str | None,
        option("--args", "JSON", "A JSON object in place of the job's args."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end: exit code 0 if it succeeded, else 1.")
    ] = False,
    overlap: Annotated[
        Overlap | None,
        option("--overlap", None, "What to do if a run is queued or running already, in place of the job's rule."),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Run a job now, whatever its schedule says. Prints the run's id.

    A run in its way counts as on schedule, by the job's overlap rule or the one given. If it is skipped, exit code 1.
    """
    text = None if args is None else json.dumps(parse_object(args, field="args"))
    if wait and as_json:
        raise WrongUse("json: not together with --wait, which tells what happens as it happens.")

    async def enqueue(connection: Connection) -> bool:
        made = await catalog.enqueue_run(connection, name, args=text, overlap=overlap.value if overlap else None)
        if made is None:
            raise NotFound(f"There is no job named {name!r}. See: pgcron-runner job list")
        run_id, status, reason = made
        if as_json:
            print_json({"run_id": run_id, "status": status, "reason": reason})
            return status != Status.SKIPPED
        if status == Status.SKIPPED:
            raise Unchanged(_skipped(name, run_id, reason or ""))
        if not quiet:
            say(f"Run {run_id} of job {clean(name)} is queued.")
        return not wait or await follow_run(connection, run_id, quiet=quiet)

    if not with_database(dsn, enqueue):
        raise typer.Exit(1)


def _skipped(name: str, run_id: int, reason: str) -> str:
    # Behind a running one there is room for one; behind a queued one only queue_all has any.
    rule = Overlap.QUEUE_ONE if reason.endswith("running") else Overlap.QUEUE_ALL
    other = f"pgcron-runner job run {shlex.quote(name)} --overlap {rule.value}"
    return f"Run {run_id} of job {name} was skipped: {reason}. To have it wait for that one: {other}"


def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
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
    if as_json:
        print_json({"name": name, "removed": True, "cancelled": job.queued, "running": job.running})
        return
    if quiet:
        return
    say(f"Removed job {clean(name)}. Its history stays: pgcron-runner runs list {shlex.quote(name)}")
    _say_what_was_live(job)


def _ask(job: Job) -> None:
    if not sys.stdin.isatty():
        raise Unchanged("Nobody is there to be asked. Say --yes to remove it.")
    if not typer.confirm(f"Remove job {clean(job.name)} ({job.kind}, {clean(job.schedule)})?"):
        raise Unchanged("Nothing was removed.")
