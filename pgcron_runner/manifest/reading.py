"""From what somebody says of a job to its checked definition, with every fault told at once. Needs no database."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Final, assert_never
from zoneinfo import ZoneInfo

from pgcron_runner.durations import format_duration, parse_duration
from pgcron_runner.errors import InvalidInput
from pgcron_runner.manifest import checks
from pgcron_runner.manifest.definition import AFTER, Definition, moment
from pgcron_runner.manifest.environment import FromEnvironment
from pgcron_runner.manifest.fields import COMMANDS, FIELD, FIELDS, KINDS, Field, Shape
from pgcron_runner.manifest.links import read_links
from pgcron_runner.manifest.problems import Fault, InvalidDefinition, fault_of, shorten
from pgcron_runner.manifest.texts import parse_instant, parse_object, parse_queue
from pgcron_runner.model import DstGap, DstRepeat, Overlap
from pgcron_runner.schedule import check_timezone, parse_schedule

KEYS: Final = (*FIELD, AFTER)
# Words of other doors, and of other schedulers.
_MEANT: Final = {
    "command": "shell", "cmd": "shell", "run": "shell", "kind": "shell", "url": "http", "function": "python",
    "cron": "schedule", "tz": "timezone", "zone": "timezone", "attempts": "max_attempts", "retries": "max_attempts",
    "memory_limit": "memory_limit_mb", "output_limit": "output_limit_kb", "tag": "tags", "disabled": "enabled",
    "depends_on": AFTER, "needs": AFTER,
}  # fmt: skip
_TRUTH: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
_EXACT: Final = 2**53


def read_definition(name: str, said: Mapping[str, Any]) -> Definition:
    """The job that keys and values describe. Raises InvalidDefinition with all faults."""
    faults: list[Fault] = []

    def attempt(key: str | None, read: Callable[..., Any], *given: Any) -> Any:
        try:
            return read(*given)
        except InvalidInput as error:
            faults.append(fault_of(error, _key_of(error, key)))
            return None

    attempt(None, checks.check_name, name)
    faults += unknown_keys(said)
    command = _command(said, faults, attempt)
    columns = {
        field.key: attempt(field.key, _read, field, said[field.key]) if field.key in said else field.default
        for field in FIELDS
        if field.shape is not Shape.MOMENT
    }
    for key in ("schedule", "timezone"):
        if key not in said:
            faults.append(Fault(key, "it must be said", FIELD[key].example))
    if columns["timezone"] is not None:
        attempt("timezone", check_timezone, columns["timezone"])
    attempt("schedule", _check_schedule, name, columns)
    columns |= _moments(said, columns["timezone"], attempt)
    attempt("max_running", _check_max_running, columns)
    if command is not None:
        columns |= {"kind": command[0], "command": command[1]}
        if columns["args"] is not None:
            attempt(command[0], checks.check_args, *command, columns["args"])
    after = attempt(AFTER, read_links, name, said[AFTER]) if AFTER in said else ()
    if faults:
        raise InvalidDefinition(name, faults)
    return Definition(name, columns, after)


def unknown_keys(said: Mapping[str, Any]) -> list[Fault]:
    """Keys that no job has, with the nearest that there is."""
    faults = []
    for key in said:
        if key not in KEYS:
            near = _MEANT.get(str(key).replace("-", "_")) or next(iter(get_close_matches(str(key), KEYS, 1, 0.6)), None)
            hint = f"; the nearest is {near}" if near else f"; there are {', '.join(KEYS)}"
            faults.append(Fault(str(key), f"no job has this key{hint}"))
    return faults


def _key_of(error: InvalidInput, key: str | None) -> str | None:
    """The key that an error is about: a check of several values names the one that is wrong."""
    field = error.field.replace("-", "_")
    return field if field in FIELD else key


def _command(said: Mapping[str, Any], faults: list[Fault], attempt: Callable[..., Any]) -> tuple[str, str] | None:
    given = [field for field in COMMANDS if field.key in said]
    if len(given) != 1:
        which = ", ".join(KINDS)
        only = given[1].key if given else None
        message = f"only one of {which} can be said" if given else f"say what to run: one of {which}"
        faults.append(Fault(only or "sql", message, None if given else FIELD["sql"].example))
        return None
    field = given[0]
    text = attempt(field.key, _text, field, said[field.key])
    text = None if text is None else attempt(field.key, checks.check_command, KINDS[field.key], text)
    return None if text is None else (field.key, text)


def _check_schedule(name: str, columns: Mapping[str, Any]) -> None:
    schedule, gap, repeat = columns["schedule"], columns["dst_gap"], columns["dst_repeat"]
    if None not in (schedule, gap, repeat):
        zone = _zone(columns["timezone"])
        parse_schedule(schedule, zone.key, name=name, dst_gap=DstGap(gap), dst_repeat=DstRepeat(repeat))


def _zone(timezone: str | None) -> ZoneInfo:
    """The zone to read by; UTC where it is wrong, which is another fault."""
    try:
        return check_timezone(timezone or "UTC")
    except InvalidInput:
        return check_timezone("UTC")


def _check_max_running(columns: Mapping[str, Any]) -> None:
    if columns["overlap"] is not None:
        checks.check_max_running(columns["max_running"], Overlap(columns["overlap"]))


def _moments(said: Mapping[str, Any], timezone: str | None, attempt: Callable[..., Any]) -> dict[str, Any]:
    zone = _zone(timezone)
    keys = ("starts_at", "ends_at")
    read = {key: attempt(key, _moment, key, said[key], zone) if key in said else None for key in keys}
    texts = [None if instant is None else moment(instant) for instant in read.values()]
    attempt("ends_at", checks.bounds, *texts, zone)
    return read


# ----------------------------------------------------------------------------------------------- shapes of values


def _read(field: Field, value: Any) -> Any:
    """One value of a field. Raises InvalidInput."""
    match field.shape:
        case Shape.TEXT | Shape.LINES:
            text = "\n".join(_texts(field, value)) if _is_lines(field, value) else _text(field, value)
            return _CHECKS.get(field.key, str)(text)
        case Shape.DURATION:
            return _duration(field, value)
        case Shape.INTEGER:
            return _integer(field, value)
        case Shape.NUMBER:
            return _number(field, value)
        case Shape.FLAG:
            return _flag(field, value)
        case Shape.CHOICE:
            return _choice(field, value)
        case Shape.TEXTS:
            return _CHECKS.get(field.key, list)(_texts(field, value))
        case Shape.VARIABLES:
            return _variables(field, value)
        case Shape.OBJECT:
            return _object(field, value)
        case Shape.MOMENT:
            return _moment(field.key, value, check_timezone("UTC"))
        case _:
            assert_never(field.shape)


def _is_lines(field: Field, value: Any) -> bool:
    return field.shape is Shape.LINES and isinstance(value, list)


def _text(field: Field, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field.key, value, "is not a text")
    if "\0" in value or (not value.isascii() and _is_half(value)):
        raise InvalidInput(field.key, value, "has a character that Postgres cannot store")
    return str(value)


def _is_half(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _texts(field: Field, value: Any) -> list[str]:
    if isinstance(value, tuple):
        value = list(value)
    if not isinstance(value, list):
        raise InvalidInput(field.key, value, "is not a list of texts")
    return [_text(field, item) for item in value]


def _duration(field: Field, value: Any) -> timedelta:
    if isinstance(value, timedelta):
        value = format_duration(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise InvalidInput(field.key, value, "has no unit", example=f"{value}s")
    duration = parse_duration(_text(field, value), field=field.key, minimum=field.least)
    if field.most is not None and duration > field.most:
        raise InvalidInput(field.key, value, f"is longer than {format_duration(field.most)}")
    return duration


def _integer(field: Field, value: Any) -> int:
    if isinstance(value, FromEnvironment) and value.strip().lstrip("+-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(field.key, value, "is not a whole number")
    return int(_within(field, value))


def _number(field: Field, value: Any) -> float:
    if isinstance(value, FromEnvironment):
        try:
            value = float(value)
        except ValueError:
            raise InvalidInput(field.key, value, "is not a number") from None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise InvalidInput(field.key, value, "is not a number")
    return float(_within(field, value))


def _within(field: Field, value: float) -> float:
    if not field.least <= value <= field.most:
        raise InvalidInput(field.key, value, f"is not between {field.least} and {field.most}")
    return value


def _flag(field: Field, value: Any) -> bool:
    if isinstance(value, FromEnvironment):
        value = _TRUTH.get(value.strip().lower(), value)
    if not isinstance(value, bool):
        raise InvalidInput(field.key, value, "is neither true nor false")
    return value


def _choice(field: Field, value: Any) -> str:
    if value not in field.choices:
        raise InvalidInput(field.key, value, f"is none of {', '.join(field.choices)}")
    return str(value)


def _moment(key: str, value: Any, zone: ZoneInfo) -> datetime:
    if isinstance(value, datetime | date):
        value = value.isoformat()
    return parse_instant(_text(FIELD[key], value), field=key, zone=zone)


def _variables(field: Field, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InvalidInput(field.key, value, "is not a table of variables")
    for name, item in value.items():
        checks.variable(field.key, str(name))
        if not isinstance(item, str):
            # The value may be a secret: only its name is repeated.
            raise InvalidInput(field.key, name, "is given a value that is not a text")
        _text(field, item)
    return {name: str(item) for name, item in value.items()}


def _object(field: Field, value: Any) -> dict[str, Any]:
    """A table, or a text with a JSON object, which has null too."""
    if isinstance(value, str):
        return _as_kept(parse_object(value, field=field.key))
    if not isinstance(value, dict):
        raise InvalidInput(field.key, value, "is not a table")
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(field.key, shorten(value), f"is not what JSON can hold: {error}") from None
    return _as_kept(parse_object(text, field=field.key))


def _as_kept(value: dict[str, Any]) -> dict[str, Any]:
    """A table as Postgres gives it back."""
    return {key: _number_as_kept(item) for key, item in value.items()}


def _number_as_kept(value: Any) -> Any:
    """A large float that is whole comes back as an integer."""
    match value:
        case float() if value.is_integer() and abs(value) >= _EXACT:
            return int(Decimal(repr(value)))
        case list():
            return [_number_as_kept(item) for item in value]
        case dict():
            return _as_kept(value)
    return value


_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "queue": parse_queue,
    "heartbeat_url": checks.check_heartbeat_url,
    "exclude": checks.calendars,
    "tags": lambda texts: [checks.tag_of(text) for text in texts],
    "redact": lambda texts: [checks.pattern(text) for text in texts],
    "env_from": lambda texts: [checks.variable("env_from", text) for text in texts],
}
