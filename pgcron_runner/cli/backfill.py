"""`pgcron-runner backfill`: runs for nominal times that have passed."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from pgcron_runner.cli.jobs import find_job
from pgcron_runner.cli.options import (
    AsJson,
    Dsn,
    Quiet,
    Unchanged,
    WrongUse,
    examples,
    job_argument,
    option,
    parse_instant,
)
from pgcron_runner.cli.output import Cell, clean, local, plural, print_facts, print_json, say, zone_of
from pgcron_runner.cli.session import with_database
from pgcron_runner.cli.upcoming import parse_rule, rule_of
from pgcron_runner.errors import InvalidInput
from pgcron_runner.explain import excluded_on
from pgcron_runner.model import Overlap
from pgcron_runner.store import catalog, inquiry
from pgcron_runner.store.catalog import Job
from pgcron_runner.store.inquiry import Filled

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

EXAMPLES = examples(
    "pgcron-runner backfill nightly --from 2027-01-01 --to 2027-02-01 --dry-run",
    "pgcron-runner backfill nightly --from 2027-01-01 --to 2027-02-01 --yes",
    "pgcron-runner backfill import --from 2027-01-01T00:00Z --to 2027-01-02T00:00Z \\",
    "    --overlap allow --yes",
)

_MOST, _BATCH = 10_000, 1000
_NAMED = 10
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The times to be filled in, and what there is already of the others in the range."""

    job: Job
    times: list[datetime]
    excluded: int
    succeeded: list[datetime]
    live: int
    backfilled: int


def backfill(
    name: Annotated[str, job_argument()],
    start: Annotated[str, option("--from", "INSTANT", "From this time on; in the job's zone, if it has no offset.")],
    end: Annotated[str, option("--to", "INSTANT", "Up to this time, which is left out; never in the future.")],
    overlap: Annotated[
        Overlap,
        option("--overlap", "allow|queue_all", "allow: side by side, as far as the job allows it; else one by one."),
    ] = Overlap.QUEUE_ALL,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be made.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Queue runs of a job for times that have passed, oldest first.

    Times that have succeeded, are queued or are running are left alone, and so is what an earlier backfill has made.
    """
    if overlap not in (Overlap.ALLOW, Overlap.QUEUE_ALL):
        raise InvalidInput(
            "overlap",
            overlap.value,
            "means nothing here: runs of a backfill wait for each other, or run side by side",
            example="--overlap allow",
        )

    for field, text in (("from", start), ("to", end)):
        parse_instant(text, field=field, zone=zone_of("UTC"))  # what is no time at all needs no database

    async def fill(connection: Connection) -> tuple[_Plan, int]:
        # Here, because it brings the driver, which takes longer to load than most commands take to run.
        from pgcron_runner.store.jobs import insert_backfill

        plan = await _plan(connection, name, start, end)
        if dry_run or not plan.times:
            return plan, 0
        if not yes:
            _ask(plan)
        made = 0
        for first in range(0, len(plan.times), _BATCH):
            batch = plan.times[first : first + _BATCH]
            made += await insert_backfill(connection, plan.job.id, batch, overlap=overlap)
        return plan, made

    plan, made = with_database(dsn, fill)
    if as_json:
        print_json(_as_json(plan, made, dry_run=dry_run))
    elif dry_run:
        print_facts(_facts(plan))
    elif not quiet:
        _tell(plan, made)


async def _plan(connection: Connection, name: str, start: str, end: str) -> _Plan:
    job = await find_job(connection, name)
    _check_schedule(job)
    since, until = _range(job, start, end, await catalog.read_clock(connection), zone_of(job.timezone))
    bounds = _within(job, since, until)
    schedule = parse_rule(rule_of(job))
    times = list(islice(schedule.between(bounds[0] - _TICK, bounds[1] - _TICK), _MOST + 1))
    if len(times) > _MOST:
        count = schedule.count_between(bounds[0] - _TICK, bounds[1] - _TICK)
        problem = f"takes in {count:,} times of this job, and one call makes at most {_MOST:,}"
        raise InvalidInput("to", end, problem, example=f"--to {times[-1]:%Y-%m-%dT%H:%M:%SZ}")
    excluded = (await inquiry.read_circumstances(connection, job.id)).excluded
    wanted = [at for at in times if excluded_on(excluded, at.astimezone(zone_of(job.timezone)).date()) is None]
    found = {filled.at: filled for filled in await inquiry.list_filled_times(connection, job.id, since, until)}
    there = [found[at] for at in wanted if at in found]
    return _Plan(
        job,
        [at for at in wanted if at not in found],
        excluded=len(times) - len(wanted),
        succeeded=[filled.at for filled in there if filled.succeeded],
        live=sum(filled.live and not filled.succeeded for filled in there),
        backfilled=sum(_only_backfilled(filled) for filled in there),
    )


def _only_backfilled(filled: Filled) -> bool:
    return filled.backfilled and not filled.succeeded and not filled.live


def _check_schedule(job: Job) -> None:
    """Raises where the job has no times of its own, or its schedule cannot be read."""
    schedule = parse_rule(rule_of(job))
    by_hand = f"Run it by hand: pgcron-runner job run {shlex.quote(job.name)}"
    if schedule.is_manual:
        raise WrongUse(f"Job {job.name!r} is manual: it has no times that could be filled in. {by_hand}")
    if schedule.after_finish is not None:
        raise WrongUse(
            f"Job {job.name!r} counts from the end of its last run: it has no fixed times to be filled in. {by_hand}"
        )


def _range(job: Job, start: str, end: str, now: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    since, until = parse_instant(start, field="from", zone=zone), parse_instant(end, field="to", zone=zone)
    if since >= until:
        raise InvalidInput("to", end, "is not after --from", example=local(since + timedelta(days=1), zone)[:10])
    if until > now:
        problem = "is in the future; what is due then runs by itself"
        raise InvalidInput("to", end, problem, example=f"{now.astimezone(zone):%Y-%m-%dT%H:%M}")
    return since, until


def _within(job: Job, since: datetime, until: datetime) -> tuple[datetime, datetime]:
    """Its times outside of starts_at and ends_at, which are inclusive, are no occurrences."""
    if job.starts_at is not None:
        since = max(since, job.starts_at)
    if job.ends_at is not None:
        until = min(until, job.ends_at + _TICK)
    return since, max(since, until)


def _ask(plan: _Plan) -> None:
    if not sys.stdin.isatty():
        raise Unchanged("Nobody is there to be asked. Say --yes to make them, or --dry-run to see them.")
    first, last = _ends(plan)
    if not typer.confirm(
        f"Queue {plural(len(plan.times), 'run')} of job {clean(plan.job.name)}, {first} to {last}?", err=True
    ):
        raise Unchanged("Nothing was queued.")


def _ends(plan: _Plan) -> tuple[str, str]:
    zone = zone_of(plan.job.timezone)
    return local(plan.times[0], zone), local(plan.times[-1], zone)


def _facts(plan: _Plan) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell]] = [("To be made", plural(len(plan.times), "run"))]
    if plan.times:
        facts += [("First", _ends(plan)[0]), ("Last", _ends(plan)[1])]
    if plan.succeeded:
        zone = zone_of(plan.job.timezone)
        times = ", ".join(local(at, zone) for at in plan.succeeded[:_NAMED])
        more = len(plan.succeeded) - _NAMED
        facts.append(("Succeeded", f"{times} and {more} more" if more > 0 else times))
    return [*facts, ("Left alone", _left_alone(plan) or "nothing")]


def _left_alone(plan: _Plan) -> str:
    counts = (
        (len(plan.succeeded), "succeeded already"),
        (plan.live, "queued or running"),
        (plan.backfilled, "made by an earlier backfill"),
        (plan.excluded, "on excluded days"),
    )
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def _tell(plan: _Plan, made: int) -> None:
    left = _left_alone(plan)
    if made:
        first, last = _ends(plan)
        say(f"Queued {plural(made, 'run')} of job {clean(plan.job.name)}, {first} to {last}.")
    elif left:
        say("Nothing was queued: every time is accounted for.")
    else:
        say("Nothing was queued: the job has no time in this range.")
    if left:
        say(f"Left alone: {left}.")
    if made:
        say(f"See: pgcron-runner runs list {shlex.quote(plan.job.name)}")


def _as_json(plan: _Plan, made: int, *, dry_run: bool) -> dict[str, object]:
    return {
        "job": plan.job.name,
        "dry_run": dry_run,
        "made": made,
        "to_be_made": len(plan.times),
        "first": plan.times[0] if plan.times else None,
        "last": plan.times[-1] if plan.times else None,
        "succeeded": plan.succeeded,
        "live": plan.live,
        "backfilled": plan.backfilled,
        "excluded": plan.excluded,
    }
