"""One field of a cron expression: what is accepted, what it means. It knows no other field.

Refused rather than guessed at: full names, steps larger than the field, blanks, croniter's random `R`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Final

from pgcron_runner.schedule.dates import DayRule, LastDay, NearestWeekday, NthWeekday
from pgcron_runner.schedule.expand import expand


class FieldError(Exception):
    """A field cannot be read. `field_example` is that field written right, `example` a whole schedule."""

    def __init__(self, problem: str, *, field_example: str | None = None, example: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.field_example = field_example
        self.example = example


@dataclass(frozen=True, slots=True)
class Field:
    """A field's name, its values, the letters for them, and the column in which croniter expands it.

    `written_high` is the highest number a person may write (Sunday is 0 and 7), `hash_high` the highest that
    `H` draws (no month lacks a 28th), `unit` the letter of `@every` for it.
    """

    name: str
    _: KW_ONLY
    column: int
    low: int
    high: int
    names: tuple[str, ...] = ()
    unit: str | None = None
    written_high: int = 0
    hash_high: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "written_high", self.written_high or self.high)
        object.__setattr__(self, "hash_high", self.hash_high or self.high)

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    @property
    def everything(self) -> tuple[int, ...]:
        return tuple(range(self.low, self.high + 1))


@dataclass(frozen=True, slots=True)
class FieldValue:
    """What a field stands for: sorted values, rules that name one day of a month, and what cron calls a star.

    `starred`: it begins with `*`, is `?`, or begins with `H/n`, which is `*/n` from another start.
    """

    values: tuple[int, ...]
    rules: tuple[DayRule, ...] = ()
    starred: bool = False


_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

# croniter knows seconds only as a sixth column; they read like minutes.
SECOND: Final = Field("second", column=0, low=0, high=59, unit="s")
MINUTE: Final = Field("minute", column=0, low=0, high=59, unit="m")
HOUR: Final = Field("hour", column=1, low=0, high=23, unit="h")
DAY_OF_MONTH: Final = Field("day-of-month", column=2, low=1, high=31, unit="d", hash_high=28)
MONTH: Final = Field("month", column=3, low=1, high=12, names=_MONTHS)
DAY_OF_WEEK: Final = Field("day-of-week", column=4, low=0, high=6, names=_WEEKDAYS, written_high=7)

_PLAIN: Final = re.compile(r"(?P<first>\*|\w+)(?:-(?P<last>\w+))?(?:/(?P<step>\w*))?", re.ASCII)
_HASH: Final = re.compile(r"h(?:\((?P<low>\d+)-(?P<high>\d+)\))?(?:/(?P<step>\d+))?", re.ASCII | re.IGNORECASE)
_STARRED: Final = re.compile(r"[*?]|h/", re.IGNORECASE)
_FULL_NAMES: Final = {
    word: word[:3]
    for word in (
        *("january", "february", "march", "april", "june", "july", "august", "september", "sept"),
        *("october", "november", "december", "sunday", "monday", "tuesday", "tues", "wednesday"),
        *("thursday", "thurs", "thur", "friday", "saturday"),
    )
}


def read_field(field: Field, text: str, name: str = "") -> FieldValue:
    """The meaning of one field; FieldError says what is wrong with it. `name` is the job's, for `H` only."""
    return _read_field(field, text, name if "h" in text.lower() else "")


@lru_cache(maxsize=20_000)
def _read_field(field: Field, text: str, name: str) -> FieldValue:
    if text == "?":
        return _any_day(field)
    values: set[int] = set()
    rules: list[DayRule] = []
    parts = text.split(",")
    for index, part in enumerate(parts):
        try:
            if rule := _day_rule(field, part):
                rules.append(rule)
            else:
                values.update(_values(field, part, name))
        except FieldError as error:
            if error.field_example is not None:
                error.field_example = ",".join([*parts[:index], error.field_example, *parts[index + 1 :]])
            raise
    return FieldValue(tuple(sorted(values)), tuple(rules), _STARRED.match(text) is not None)


def _any_day(field: Field) -> FieldValue:
    if field not in (DAY_OF_MONTH, DAY_OF_WEEK):
        raise FieldError("'?' stands for any day and belongs in a day field only", field_example="*")
    return FieldValue(field.everything, starred=True)


def _day_rule(field: Field, part: str) -> DayRule | None:
    """`L`, `L-n`, `LW`, `nW` among the days of the month; `dow#n`, `dowL`, `Ldow` among those of the week."""
    if field is DAY_OF_MONTH:
        return _day_of_month_rule(field, part)
    if field is DAY_OF_WEEK:
        return _day_of_week_rule(field, part)
    return None


def _day_of_month_rule(field: Field, part: str) -> DayRule | None:
    upper = part.upper()
    if upper == "LW":
        return NearestWeekday()
    if found := re.fullmatch(r"L(?:-(\d+))?", upper, re.ASCII):
        before = int(found[1] or 0)
        if before >= field.high:
            raise FieldError(f"{part!r} lies before the first of every month", field_example="L-3")
        return LastDay(before)
    if found := re.fullmatch(r"(\d+)W", upper, re.ASCII):
        return NearestWeekday(_number(field, found[1]))
    return None


def _day_of_week_rule(field: Field, part: str) -> DayRule | None:
    upper = part.upper()
    if upper == "L":
        raise FieldError("'L' needs its weekday: 5L is the last Friday of the month", field_example="5L")
    if found := re.fullmatch(r"(\w+)#(\w+)", part, re.ASCII):
        weekday = _number(field, found[1]) % 7
        if found[2] not in ("1", "2", "3", "4", "5"):
            raise FieldError(f"{part!r} must count from 1 to 5 after the '#'", field_example=f"{found[1]}#1")
        return NthWeekday(weekday, int(found[2]))
    if found := re.fullmatch(r"(\d|[A-Z]{3})L|L(\d)", upper, re.ASCII):
        return NthWeekday(_number(field, found[1] or found[2]) % 7)
    return None


def _values(field: Field, part: str, name: str) -> tuple[int, ...]:
    if found := _HASH.fullmatch(part):
        return _hashed(field, part, found, name)
    found = _PLAIN.fullmatch(part)
    if not found:
        raise FieldError(_unreadable(part), field_example="*" if part.startswith("*") else None)
    if re.fullmatch(r"r\d*", part, re.ASCII | re.IGNORECASE):
        problem = "'R' would be drawn anew on each host and at each start; 'H' is stable for a job"
        raise FieldError(problem, field_example="H")
    step = None if found["step"] is None else _step(field, part, found["step"])
    if found["first"] == "*":
        return _star(field, part, step, found["last"])
    first = _number(field, found["first"])
    if found["last"] is not None:
        return _range(field, first, _number(field, found["last"]), step or 1)
    first = _low_sunday(field, first)
    if step is None or first == field.high:
        return (first,)
    return expand(field.column, f"{first}-{field.high}/{step}", field.everything)


def _star(field: Field, part: str, step: int | None, last: str | None) -> tuple[int, ...]:
    if last is not None:
        raise FieldError(f"{part!r} mixes '*' with a range", field_example=f"{field.low}-{field.high}")
    return expand(field.column, "*" if step is None else f"*/{step}", field.everything)


def _range(field: Field, first: int, last: int, step: int) -> tuple[int, ...]:
    """The values from first to last, over the field's end where last is smaller. `5-5` is one value."""
    if first == last or (field is DAY_OF_WEEK and (first, last) == (7, 0)):
        return (_low_sunday(field, first),)
    if field is DAY_OF_WEEK:
        # Sunday begins a range as 0 (sun-tue) and ends one as 7 (sat-sun).
        first, last = first % 7, last or 7
    if first < last:
        return expand(field.column, f"{first}-{last}/{step}", field.everything)
    reach = (last - first) % field.size
    return tuple((first - field.low + done) % field.size + field.low for done in range(0, reach + 1, step))


def _low_sunday(field: Field, value: int) -> int:
    return 0 if field is DAY_OF_WEEK and value == 7 else value


def _number(field: Field, token: str) -> int:
    """A number or, where the field has them, a three-letter name."""
    lower = token.lower()
    if lower in field.names:
        return field.low + field.names.index(lower)
    if not re.fullmatch(r"[0-9]+", token):
        raise _not_a_number(field, token)
    value = int(token)
    if not field.low <= value <= field.written_high:
        nearest = str(field.low if value < field.low else field.written_high)
        problem = f"{token} is not from {field.low} to {field.written_high}"
        raise FieldError(
            problem + (", and there is no year field" if 1900 < value < 2200 else ""), field_example=nearest
        )
    return value


def _not_a_number(field: Field, token: str) -> FieldError:
    lower = token.lower()
    short = _FULL_NAMES.get(lower, lower)
    if short in field.names:
        return FieldError(f"{token!r} must be written with three letters, {short!r}", field_example=short)
    for other, names in (("month", _MONTHS), ("day-of-week", _WEEKDAYS)):
        if short in names:
            return FieldError(f"{token!r} is a name for the {other} field")
    allowed = f"{field.low} to {field.written_high}"
    letters = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
    return FieldError(f"{token!r} is not a value; allowed are {allowed}{letters}", field_example="*")


def _step(field: Field, part: str, digits: str) -> int:
    if not re.fullmatch(r"[0-9]+", digits):
        raise FieldError(f"the step in {part!r} is not a number", field_example="*/2")
    step = int(digits)
    if step == 0:
        raise FieldError(f"the step in {part!r} is 0", field_example="*")
    if step > field.size:
        problem = f"the step in {part!r} is larger than the field, whose {field.size} values it restarts after"
        every = f"@every {step}{field.unit}" if field.unit else None
        raise FieldError(problem, field_example=f"*/{field.size // 2}", example=every)
    return step


def _hashed(field: Field, part: str, found: re.Match[str], name: str) -> tuple[int, ...]:
    """`H`: one value drawn from the job's name, or with a step a series that begins at one."""
    low, high = field.low, field.hash_high
    if found["low"] is not None:
        low, high = _number(field, found["low"]), _number(field, found["high"])
        if low > high or high > field.high:
            raise FieldError(f"the range in {part!r} runs backwards", field_example=f"H({field.low}-{field.high})")
    size = high - low + 1
    step = size if found["step"] is None else _step(field, part, found["step"])
    return tuple(range(low + stable_hash(field, name) % min(step, size), high + 1, step))


def stable_hash(field: Field, name: str) -> int:
    """What `H` draws from: eight bytes of SHA-256 over field and job name, the same on every host."""
    return int.from_bytes(hashlib.sha256(f"{field.name}\0{name}".encode()).digest()[:8], "big")


def _unreadable(part: str) -> str:
    if not part:
        return "it has an empty item; lists are written 1,2,3"
    if part[0] in "-/" or part[-1] in "-/":
        return f"{part!r} is cut off; ranges, lists and steps hold no blanks"
    return f"{part!r} is no value, range or step"
