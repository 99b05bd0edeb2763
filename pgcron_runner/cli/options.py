"""What several commands take: shared options, and the parsers that turn texts into checked values."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from pgcron_runner.cli.completion import job_names, timezones
from pgcron_runner.durations import format_duration, parse_duration
from pgcron_runner.errors import InvalidInput, PgcronError
from pgcron_runner.manifest.texts import parse_instant as parse_instant
from pgcron_runner.manifest.texts import parse_object as parse_object
from pgcron_runner.manifest.texts import parse_queue as parse_queue
from pgcron_runner.model import Kind


def option(flag: str, metavar: str | None, text: str, **more: Any) -> Any:
    """An option whose default is not worth showing, or is in its text."""
    return typer.Option(flag, metavar=metavar, help=text, **{"show_default": False, **more})


Dsn = Annotated[str | None, option("--dsn", "DSN", "Which database. Else PGCRON_DSN, else libpq's own PG* variables.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: instants in UTC, durations in seconds.")]


def job_argument(text: str = "The job's name.", *, metavar: str = "JOB") -> Any:
    """The name of a job, which Tab completes."""
    return typer.Argument(metavar=metavar, help=text, show_default=False, autocompletion=job_names)


# For commands that change something, and for listings.
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing where all goes well.")]
NamesOnly = Annotated[bool, typer.Option("--quiet", "-q", help="Print the names only, one a line.")]
TimesOnly = Annotated[bool, typer.Option("--quiet", "-q", help="Print the instants only, in UTC, one a line.")]
IdsOnly = Annotated[bool, typer.Option("--quiet", "-q", help="Print the ids only, one a line.")]


def timezone_option(**more: Any) -> Any:
    """`--timezone`, the same for all commands."""
    text = "IANA name of the zone that the schedule is read in, such as Europe/Berlin. There is no default."
    return option("--timezone", "ZONE", text, envvar="PGCRON_TIMEZONE", autocompletion=timezones, **more)


class WrongUse(PgcronError):
    """The command cannot be understood. See its --help."""


class Unchanged(PgcronError):
    """Nothing was done."""


def examples(*lines: str) -> str:
    """The end of a help text. The mark keeps the lines as they are where help is plain text."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def required_timezone(given: str | None) -> str:
    """The zone, which somebody must have said."""
    if not given:
        raise WrongUse("timezone: it must be said. For example: --timezone Europe/Berlin, or set PGCRON_TIMEZONE.")
    return given


def duration(
    field: str, *, minimum: timedelta = timedelta(milliseconds=1), maximum: timedelta | None = None
) -> Callable[[str | timedelta], timedelta]:
    """A parser for an option that is a duration within bounds."""

    def parse(text: str | timedelta) -> timedelta:
        # An option's default goes through its parser too.
        if isinstance(text, timedelta):
            return text
        value = parse_duration(text, field=field, minimum=minimum)
        if maximum is not None and value > maximum:
            raise InvalidInput(
                field, text, f"is longer than {format_duration(maximum)}", example=format_duration(maximum)
            )
        return value

    parse.__name__ = "duration"
    return parse


def parse_since(text: str, *, now: datetime, zone: ZoneInfo | None) -> datetime:
    """An instant, or how long ago, such as `2h`."""
    if re.match(r"\s*[0-9.]+\s*[A-Za-z]", text):
        return now - parse_duration(text, field="since")
    return parse_instant(text, field="since", zone=zone)


def parse_kinds(text: str) -> tuple[Kind, ...]:
    """A comma-separated list of kinds."""
    known = {kind.value: kind for kind in Kind}
    names = _split(text)
    for name in names:
        if name not in known:
            raise InvalidInput("kinds", name, f"is not a kind of job: {', '.join(known)}", example="sql,shell")
    if not names:
        raise InvalidInput("kinds", text, "names no kind of job", example="sql,shell")
    return tuple(known[name] for name in names)


def parse_queues(text: str) -> tuple[str, ...]:
    """A comma-separated list of queues."""
    names = _split(text)
    if not names:
        raise InvalidInput("queues", text, "names no queue", example="default,reports")
    return tuple(parse_queue(name, field="queues") for name in names)


def parse_names(text: str) -> tuple[str, ...]:
    """A comma-separated list; may be empty."""
    return tuple(_split(text))


def _split(text: str) -> list[str]:
    """The names in a list, each once."""
    return list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
