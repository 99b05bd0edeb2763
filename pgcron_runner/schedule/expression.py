"""One line of cron: five fields, six with the seconds first, or a macro. It knows no zones."""

from __future__ import annotations

import difflib
import unicodedata
from functools import lru_cache
from typing import Final

from pgcron_runner import durations
from pgcron_runner.errors import InvalidInput
from pgcron_runner.schedule.dates import Dates
from pgcron_runner.schedule.fields import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    Field,
    FieldError,
    FieldValue,
    read_field,
)
from pgcron_runner.schedule.slots import CronLine
from pgcron_runner.schedule.times import Times

FIELD: Final = "schedule"
LONGEST: Final = 1000

_FIELDS: Final = (SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)
_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_INTERVALS: Final = {"@minutely": "* * * * *", "@secondly": "@every 1s", "@fortnightly": "@every 14 days"}


def parse_expression(text: str, *, name: str = "") -> CronLine:
    """One cron expression or macro; InvalidInput(field="schedule") says what is wrong and what is right.

    `name` is the job's: only `H` depends on it. Newlines, `@every`, `@at` and `@manual` are refused here;
    they are `parse_schedule`'s. The grammar is Vixie cron's, its rule for the two day fields included, with
    the extensions of Quartz (`L`, `W`, `#`, `?`) and Jenkins (`H`).
    """
    check_characters(text)
    line = text.strip(" \t")
    if "\n" in line:
        raise InvalidInput(FIELD, text, "has more than one line", example=line.split("\n")[0])
    if line.startswith("@"):
        line = _macro(text, line.lower())
    fields = line.split()
    if len(fields) not in (5, 6):
        raise _wrong_count(text, fields)
    try:
        return _parse_fields(line, fields, name)
    except InvalidInput as error:
        raise _with_hint(error, fields, name) from None


def check_characters(text: object) -> None:
    """Refuse what is no text, too long, empty, or holds characters that only look like those of cron."""
    if not isinstance(text, str):
        raise InvalidInput(FIELD, text, "is not text", example="0 9 * * mon-fri")
    if len(text) > LONGEST:
        raise InvalidInput(FIELD, f"{text[:60]}…", f"is longer than {LONGEST} characters", example="0 9 * * mon-fri")
    for position, letter in enumerate(text):
        if not (" " <= letter <= "~" or letter in "\t\n"):
            label = unicodedata.name(letter, "control character")
            problem = f"holds U+{ord(letter):04X} ({label}) at position {position + 1}; only plain ASCII is read"
            raise InvalidInput(FIELD, text, problem, example=_plain(text) or "0 9 * * mon-fri")
    if not text.strip():
        raise InvalidInput(FIELD, text, "is empty", example="0 9 * * mon-fri, or @manual for a job run by hand")


def _plain(text: str) -> str:
    """The text with look-alikes replaced by what they look like."""
    normal = unicodedata.normalize("NFKC", text)
    digits = "".join(str(unicodedata.digit(letter, letter)) for letter in normal)
    return " ".join("".join(letter for letter in digits if " " <= letter <= "~").split())


def _macro(text: str, line: str) -> str:
    if line in _MACROS:
        return _MACROS[line]
    word = line.split()[0]
    if word == "@reboot":
        problem = "has no meaning here: workers start and stop on many hosts, and none of them is the job's"
        raise InvalidInput(FIELD, text, problem, example="@manual, started by `pgcron-runner job run` when you deploy")
    if word in ("@every", "@at", "@manual"):
        raise InvalidInput(FIELD, text, "is not a cron expression but a schedule of its own", example="*/5 * * * *")
    if word in _INTERVALS:
        raise InvalidInput(FIELD, text, f"has no macro {word!r}", example=_INTERVALS[word])
    problem = f"is not one of {', '.join(_MACROS)}, @every, @at, @manual"
    near = difflib.get_close_matches(word, [*_MACROS, "@every", "@manual"], n=1)
    raise InvalidInput(FIELD, text, problem, example=near[0] if near else "@daily")


def _wrong_count(text: str, fields: list[str]) -> InvalidInput:
    comment = next((index for index, field in enumerate(fields) if field.startswith("#")), None)
    if comment is not None:
        kept = " ".join(fields[:comment])
        return InvalidInput(FIELD, text, "holds a comment, which is not allowed here", example=kept or "0 9 * * *")
    if interval := _interval(text):
        return InvalidInput(FIELD, text, "is an interval and not a cron expression", example=interval)
    wanted = "minute hour day-of-month month day-of-week, with the seconds before them if there are six"
    problem = f"has {len(fields)} fields where 5 or 6 are wanted ({wanted})"
    if len(fields) == 7:
        problem += "; there is no year field"
        return InvalidInput(FIELD, text, problem, example=" ".join(fields[:6]))
    return InvalidInput(FIELD, text, problem, example="0 9 * * mon-fri")


def _interval(text: str) -> str | None:
    """`30 seconds` or `every 5 minutes`, as other schedulers write intervals, in the form they have here."""
    words = text.lower().split()
    words = words[1:] if words[0] == "every" else words
    try:
        durations.parse_duration(" ".join(words), field=FIELD)
    except InvalidInput:
        return None
    return f"@every {' '.join(words)}"


def _parse_fields(line: str, fields: list[str], name: str) -> CronLine:
    texts = fields if len(fields) == 6 else ["0", *fields]
    values = [_read(line, fields, field, text, name) for field, text in zip(_FIELDS, texts, strict=True)]
    second, minute, hour, day, month, weekday = values
    dates = _dates(day, month, weekday)
    if not dates.ever_come():
        raise _never(line, fields)
    times = Times(hour.values, minute.values, second.values)
    return CronLine(line, times, dates, wildcard=minute.starred or hour.starred)


def _read(line: str, fields: list[str], field: Field, text: str, name: str) -> FieldValue:
    try:
        return read_field(field, text, name)
    except FieldError as error:
        example = error.example
        if example is None and error.field_example is not None:
            index = _FIELDS.index(field) - 6 + len(fields)
            example = " ".join([*fields[:index], error.field_example, *fields[index + 1 :]])
        problem = f"cannot be read in its {field.name} field {text!r}: {error.problem}"
        raise InvalidInput(FIELD, line, problem, example=example or "0 9 * * mon-fri") from None


# Most jobs share the same few sets of days, and with the set they share its months.
@lru_cache(maxsize=20_000)
def _dates(day: FieldValue, month: FieldValue, weekday: FieldValue) -> Dates:
    return Dates(
        months=month.values,
        days=frozenset(day.values),
        weekdays=frozenset(weekday.values),
        day_rules=day.rules,
        weekday_rules=weekday.rules,
        intersect=day.starred or weekday.starred,
    )


def _never(line: str, fields: list[str]) -> InvalidInput:
    day, month, _ = fields[-3:]
    example = " ".join([*fields[:-3], "L", month, "*"])
    problem = f"names a date that never comes: day {day} of month {month}"
    return InvalidInput(FIELD, line, problem, example=f"{example} (the last day of the month)")


def _with_hint(error: InvalidInput, fields: list[str], name: str) -> InvalidInput:
    """Six fields that would be right with the seconds moved from the end to the front say so."""
    if len(fields) != 6:
        return error
    moved = [fields[-1], *fields[:-1]]
    try:
        _parse_fields(" ".join(moved), moved, name)
    except InvalidInput:
        return error
    problem = f"{error.problem}; of six fields the first is the seconds"
    return InvalidInput(FIELD, error.value, problem, example=" ".join(moved))
