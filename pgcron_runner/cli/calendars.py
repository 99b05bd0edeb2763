"""`pgcron-runner calendar add|days|list|remove`: named days on which jobs that say so are skipped."""

from __future__ import annotations

import re
import shlex
from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer

from pgcron_runner.cli.options import AsJson, Dsn, NamesOnly, Quiet, Unchanged, WrongUse, examples, option, parse_queue
from pgcron_runner.cli.output import Cell, Column, clean, note, plural, print_done, print_json, print_names, print_table
from pgcron_runner.cli.session import with_database
from pgcron_runner.errors import InvalidInput, NotFound
from pgcron_runner.store import calendars
from pgcron_runner.store.calendars import Calendar

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_COLUMNS = (
    Column("NAME", flexible=True),
    Column("DAYS", right=True),
    Column("FROM"),
    Column("TO"),
    Column("EXCLUDED BY", flexible=True),
    Column("DESCRIPTION", flexible=True, optional=1),
)
_DAY_COLUMNS = (Column("FROM"), Column("TO"), Column("LABEL", flexible=True))

Name = Annotated[str, typer.Argument(metavar="NAME", help="The calendar's name.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Adds these commands to `pgcron-runner calendar`."""
    made = examples("pgcron-runner calendar add holidays --description 'Bank holidays in Hesse'")
    days = examples(
        "pgcron-runner calendar days holidays --from 2027-01-01 --to 2027-01-01 --label 'New Year'",
        "pgcron-runner calendar days freeze --from 2027-12-20 --to 2028-01-02",
        "pgcron-runner job edit nightly-report --exclude holidays",
    )
    app.command(epilog=made)(add)
    app.command(name="days", epilog=days)(add_days)
    listed = examples("pgcron-runner calendar list", "pgcron-runner calendar list holidays --json")
    app.command(name="list", epilog=listed)(list_)
    app.command(epilog=examples("pgcron-runner calendar remove holidays"))(remove)


def add(
    name: Name,
    description: Annotated[str | None, option("--description", "TEXT", "What it is for.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Add a calendar, without days as yet."""
    parse_queue(name, field="name")

    async def insert(connection: Connection) -> None:
        if not await calendars.insert_calendar(connection, name, description=description):
            raise WrongUse(f"name: {name!r} is taken. See: pgcron-runner calendar list {shlex.quote(name)}")

    with_database(dsn, insert)
    done = f"Added calendar {name}. Its days: pgcron-runner calendar days {name} --from 2027-01-01 --to 2027-01-01"
    print_done(done, {"name": name, "description": description}, as_json=as_json, quiet=quiet)


def add_days(
    name: Name,
    first: Annotated[str, option("--from", "DAY", "First day, such as 2027-12-24.")],
    last: Annotated[str, option("--to", "DAY", "Last day, which is included; the same for a single one.")],
    label: Annotated[str | None, option("--label", "TEXT", "What the days are; a skipped run says it.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Add days to a calendar. They count in each job's own zone."""
    first_day, last_day = _day("from", first), _day("to", last)
    if last_day < first_day:
        raise InvalidInput("to", last, f"is before {first_day}", example=f"--to {first_day}")

    async def insert(connection: Connection) -> tuple[bool, Calendar]:
        is_new = await calendars.insert_calendar_days(connection, name, first_day, last_day, label=label)
        if is_new is None:
            raise NotFound(_no_calendar(name))
        return is_new, await _find(connection, name)

    is_new, calendar = with_database(dsn, insert)
    count = (last_day - first_day).days + 1
    days = f"{first_day}" if count == 1 else f"{first_day} to {last_day} ({plural(count, 'day')})"
    done = "Added" if is_new else "It has these days already:"
    done = f"{done} {days}{f', {clean(label)}' if label else ''}, in calendar {name}."
    print_done(done, _as_json(calendar), as_json=as_json, quiet=quiet)
    if not calendar.jobs and not quiet and not as_json:
        note(f"Note: no job excludes it yet: pgcron-runner job edit JOB --exclude {name}.")


def list_(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Its days.", show_default=False)] = None,
    names_only: NamesOnly = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """List the calendars, or the days of one."""

    async def read(connection: Connection) -> list[Calendar]:
        found = await calendars.list_calendars(connection, name)
        if name is not None and not found:
            raise NotFound(_no_calendar(name))
        return found

    found = with_database(dsn, read)
    if as_json:
        print_json([_as_json(calendar) for calendar in found])
    elif names_only:
        print_names(calendar.name for calendar in found)
    elif name is not None:
        _print_days(found[0])
    elif found:
        print_table(_COLUMNS, [_row(calendar) for calendar in found])
    else:
        note("There are no calendars. See: pgcron-runner calendar add --help")


def remove(name: Name, quiet: Quiet = False, as_json: AsJson = False, dsn: Dsn = None) -> None:
    """Delete a calendar and its days. Refused while a job excludes it."""

    async def delete(connection: Connection) -> None:
        if await calendars.remove_calendar(connection, name):
            return
        calendar = await _find(connection, name)
        jobs = ", ".join(clean(job) for job in calendar.jobs[:10])
        more = f" and {len(calendar.jobs) - 10} more" if len(calendar.jobs) > 10 else ""
        count = plural(len(calendar.jobs), "job excludes", "jobs exclude")
        raise Unchanged(f"{count} calendar {name}: {jobs}{more}. First: pgcron-runner job edit JOB --clear exclude")

    with_database(dsn, delete)
    removed = {"name": name, "removed": True}
    print_done(f"Removed calendar {clean(name)}.", removed, as_json=as_json, quiet=quiet)


async def _find(connection: Connection, name: str) -> Calendar:
    found = await calendars.list_calendars(connection, name)
    if not found:
        raise NotFound(_no_calendar(name))
    return found[0]


def _no_calendar(name: str) -> str:
    return f"There is no calendar named {name!r}. See: pgcron-runner calendar list"


def _day(field: str, text: str) -> date:
    example = "2027-12-24"
    if not _DAY.fullmatch(text.strip()):
        raise InvalidInput(field, text, "is not a day", example=example)
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(field, text, "names a day that does not exist", example=example) from None


def _as_json(calendar: Calendar) -> dict[str, object]:
    days = [{"from": f"{first}", "to": f"{last}", "label": label} for first, last, label in calendar.days]
    return {"name": calendar.name, "description": calendar.description, "jobs": calendar.jobs, "days": days}


def _row(calendar: Calendar) -> list[Cell]:
    count = sum((last - first).days + 1 for first, last, _ in calendar.days)
    first = str(calendar.days[0][0]) if calendar.days else "-"
    last = str(max(day for _, day, _ in calendar.days)) if calendar.days else "-"
    return [calendar.name, str(count), first, last, ", ".join(calendar.jobs) or "-", calendar.description or ""]


def _print_days(calendar: Calendar) -> None:
    if calendar.days:
        print_table(_DAY_COLUMNS, [[str(first), str(last), label or ""] for first, last, label in calendar.days])
    else:
        note(f"It has no days. See: pgcron-runner calendar days {calendar.name} --help")
    if calendar.jobs:
        note(f"Excluded by {', '.join(clean(job) for job in calendar.jobs)}.")
