"""What several commands take: shared options, and the parsers that turn texts into checked values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from pgcron_runner.durations import format_duration, parse_duration
from pgcron_runner.errors import InvalidInput, PgcronError
from pgcron_runner.model import Kind

_INSTANT = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)(?:[T ](?P<time>\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)\s?(?P<offset>Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)
# An escape, not a backslash that is followed by its letters.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SURROGATE = re.compile("[\ud800-\udfff]")
_QUEUE = re.compile(r"[A-Za-z0-9_.:-]{1,63}", re.ASCII)
# Postgres counts a year as 360 days when it compares intervals.
YEAR = timedelta(days=360)


def option(flag: str, metavar: str | None, text: str, **more: Any) -> Any:
    """An option whose default is not worth showing, or is in its text."""
    return typer.Option(flag, metavar=metavar, help=text, **{"show_default": False, **more})


Dsn = Annotated[str | None, option("--dsn", "DSN", "Which database. Else PGCRON_DSN, else libpq's own PG* variables.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: instants in UTC, durations in seconds.")]


def timezone_option(**more: Any) -> Any:
    """`--timezone`, the same for all commands."""
    text = "IANA name of the zone that the schedule is read in, such as Europe/Berlin. There is no default."
    return option("--timezone", "ZONE", text, envvar="PGCRON_TIMEZONE", **more)


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


def parse_instant(text: str, *, field: str, zone: ZoneInfo | None = None) -> datetime:
    """An ISO date and time as an instant in UTC; one without an offset is read in `zone`, or refused without it.

    A local time that the clock skips or shows twice is refused too: only an offset says which instant is meant.
    """
    example = "2027-01-31T09:00 or 2027-01-31T09:00Z" if zone else "2027-01-31T09:00Z or 2027-01-31T09:00+01:00"
    found = _INSTANT.fullmatch(text.strip())
    if not found:
        raise InvalidInput(field, text, "is not a date and time", example=example)
    try:
        moment = datetime.fromisoformat(f"{found['day']}T{found['time'] or '00:00'}{(found['offset'] or '').upper()}")
        if moment.tzinfo is None:
            moment = _in_zone(moment, text, field, zone)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(field, text, "names a date or time that does not exist", example=example) from None


def _in_zone(moment: datetime, text: str, field: str, zone: ZoneInfo | None) -> datetime:
    if zone is None:
        raise InvalidInput(field, text, "does not say its offset from UTC", example=f"{moment.isoformat()}Z")
    first, last = (moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() != last.utcoffset():
        gap = first.astimezone(UTC) > last.astimezone(UTC)
        problem = f"is a time that the clocks of {zone.key} {'skip' if gap else 'show twice'}; say its offset"
        raise InvalidInput(field, text, problem, example=first.astimezone(UTC).astimezone(zone).isoformat())
    return first


def parse_since(text: str, *, now: datetime, zone: ZoneInfo | None) -> datetime:
    """An instant, or how long ago, such as `2h`."""
    if re.match(r"\s*[0-9.]+\s*[A-Za-z]", text):
        return now - parse_duration(text, field="since")
    return parse_instant(text, field="since", zone=zone)


def parse_object(text: str, *, field: str) -> dict[str, Any]:
    """A JSON object that Postgres takes too."""
    example = """'{"month": "2027-01"}'"""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise InvalidInput(field, text, "is not JSON", example=example) from None
    if _NUL.search(json.dumps(value)) or _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        raise InvalidInput(field, text, "has a character that Postgres cannot store", example=example)
    if not isinstance(value, dict):
        raise InvalidInput(field, text, "is not a JSON object", example=example)
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


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


def parse_queue(name: str, *, field: str = "queue") -> str:
    """The name of one queue."""
    if not _QUEUE.fullmatch(name):
        raise InvalidInput(field, name, "is not 1 to 63 letters, digits or any of _ . : -", example="reports")
    return name


def parse_names(text: str) -> tuple[str, ...]:
    """A comma-separated list; may be empty."""
    return tuple(_split(text))


def _split(text: str) -> list[str]:
    """The names in a list, each once."""
    return list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
