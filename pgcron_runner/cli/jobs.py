"""`pgcron-runner job list` and `job show`: looking at jobs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgcron_runner.cli.chains import sentence as chain_sentence
from pgcron_runner.cli.incidents import what_is_wrong
from pgcron_runner.cli.options import AsJson, Dsn, NamesOnly, TimesOnly, examples, job_argument, option
from pgcron_runner.cli.output import (
    Cell,
    Column,
    Styled,
    clean,
    instant,
    local,
    note,
    print_facts,
    print_heading,
    print_json,
    print_names,
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
from pgcron_runner.cli.upcoming import in_words, next_run_at, parse_rule, print_slots, rule_of, slots_of
from pgcron_runner.durations import format_duration
from pgcron_runner.errors import NotFound
from pgcron_runner.explain import Circumstances
from pgcron_runner.model import Kind
from pgcron_runner.store import catalog, inquiry
from pgcron_runner.store.catalog import Job, ListedJob, ListedRun
from pgcron_runner.store.chains import Chain, list_chains
from pgcron_runner.store.incidents import Incident, list_incidents

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
    Column("AT", optional=1),
    Column("LAST"),
    Column("ENDED", optional=2),
    Column("QUEUE", flexible=True, optional=4),
    Column("PROBLEM", flexible=True, optional=3),
)

Name = Annotated[str, job_argument(metavar="NAME")]


def register(app: typer.Typer) -> None:
    """Adds these commands to `pgcron-runner job`."""
    listed = examples("pgcron-runner job list", "pgcron-runner job list --problem --json")
    app.command(name="list", epilog=listed)(list_)
    app.command(epilog=examples("pgcron-runner job show nightly-report"))(show)
    listed = examples(
        "pgcron-runner job next nightly-report", "pgcron-runner job next nightly-report --count 30 --json"
    )
    app.command(name="next", epilog=listed)(next_)


def list_(
    queue: Annotated[str | None, option("--queue", "NAME", "Jobs of this queue.")] = None,
    tag: Annotated[str | None, option("--tag", "WORD", "Jobs with this tag.")] = None,
    kind: Annotated[Kind | None, typer.Option("--kind", help="Jobs of this kind.", show_default=False)] = None,
    problem: Annotated[bool, typer.Option("--problem", help="Jobs that cannot be scheduled, and why.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help=f"However many there are; else the first {_LIMIT}.")
    ] = False,
    names_only: NamesOnly = False,
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
    elif names_only:
        print_names(job.name for job in shown)
    elif shown and problem:
        print_facts([(job.name, Styled(job.problem or "", "red")) for job in shown])
    elif shown:
        print_table(_COLUMNS, [_row(job, now) for job in shown])
    else:
        note(
            "No job has a problem."
            if problem and not (queue or tag or kind)
            else "There is no such job."
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

    wrong: list[Incident] = []

    async def read(connection: Connection) -> tuple[Job, list[ListedRun], list[Chain], Circumstances, datetime]:
        job = await find_job(connection, name)
        last = await catalog.list_job_runs(connection, job.id, job_name=job.name, limit=_LAST)
        chained = await list_chains(connection, job.name)
        wrong.extend(await list_incidents(connection, limit=_LAST, job=job.name))
        around = await inquiry.read_circumstances(connection, job.id)
        return job, last, chained, around, await catalog.read_clock(connection)

    job, last, chained, around, now = with_database(dsn, read)
    slots = slots_of(job, now, _NEXT, around.excluded)
    job = replace(job, next_run_at=slots[0].at if slots else None)
    if as_json:
        times = {"next_times": [to_json(slot.at) for slot in slots]}
        more = {"chains": to_json(chained), "last_runs": to_json(last), "incidents": to_json(wrong)}
        print_json(to_json(job) | times | more)
        return
    print_facts(_facts(job, now))
    for incident in wrong:
        say(f"{what_is_wrong(incident, now)}.")
    for chain in chained:
        say(f"{chain_sentence(chain)}.")
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


def next_(
    name: Name,
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, max=10_000, help="How many.")] = 5,
    times_only: TimesOnly = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Show when a job is due next, and what will be skipped. Takes a pause and its first and last time into account."""

    async def read(connection: Connection) -> tuple[Job, Circumstances, datetime]:
        job = await find_job(connection, name)
        return job, await inquiry.read_circumstances(connection, job.id), await catalog.read_clock(connection)

    job, around, now = with_database(dsn, read)
    slots = slots_of(job, now, count, around.excluded)
    if as_json:
        print_json([{"at": s.at, "remark": s.remark or None, "skipped": s.skipped or None} for s in slots])
    elif times_only:
        print_names(instant(slot.at) for slot in slots if not slot.skipped)
        return
    elif slots:
        print_slots(slots, zone_of(job.timezone), now)
    if (remark := _why_fewer(job, len(slots), count)) is not None:
        note(f"Note: {remark}.")


def _why_fewer(job: Job, found: int, wanted: int) -> str | None:
    if job.problem:
        return f"it has a problem: {clean(job.problem)}"
    if not job.enabled:
        return f"it is disabled; start it with: pgcron-runner job resume {shlex.quote(job.name)}"
    schedule = parse_rule(rule_of(job))
    if schedule.is_manual:
        return "it is manual, and due only when somebody runs it"
    if schedule.after_finish is not None:
        return f"it is due {format_duration(schedule.after_finish)} after the end of each run, so no more can be listed"
    return None if found == wanted else "it is never due after that" if found else "it is never due again"


async def find_job(connection: Connection, name: str) -> Job:
    """The job of that name. Raises NotFound."""
    job = await catalog.read_job(connection, name)
    if job is None:
        raise NotFound(f"There is no job named {name!r}. See: pgcron-runner job list")
    return job


# What a new job has; anything else is worth showing.
_USUAL: dict[str, Any] = {
    "args": {},
    "exclude": [],
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
    "redact": [],
    "idempotent": False,
    "check_ignore": {},
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
    "fired_until",
    "fired_local",
    "zone_data",
    "synced",
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
        facts.append((field.name, show_value(value, zone)))
        if field.name == "schedule" and (words := in_words(rule_of(job))):
            facts.append(("in words", words))
    facts.append(("id", str(job.id)))
    facts.append(("created_at", f"{local(job.created_at, zone)}  {utc(job.created_at)}"))
    facts.append(("updated_at", f"{local(job.updated_at, zone)}  {utc(job.updated_at)}"))
    return facts


def _state(job: Job, now: datetime) -> Cell:
    text = _next(job, now)
    return text if isinstance(text, Styled) or text == "never" else f"next {text}"


def show_value(value: Any, zone: Any) -> str:
    """A column of a job, as people read it."""
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
