"""The fields of a job: their names, shapes, bounds, defaults and meaning. Every door reads this one list.

A key is the name of the column in `pgcron.jobs`. What a value means beyond its shape is in `checks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from pgcron_runner.model import CatchUp, DstGap, DstRepeat, Kind, Overlap

# Postgres counts a year as 360 days when it compares intervals.
_YEAR: Final = timedelta(days=360)
LARGEST: Final = 2**31 - 1
_ZERO, _INSTANT, _HOUR, _DAY = timedelta(0), timedelta(milliseconds=1), timedelta(hours=1), timedelta(days=1)


class Shape(StrEnum):
    """What a value looks like."""

    TEXT = "text"
    LINES = "lines"  # a text, or a list of its lines
    DURATION = "duration"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"
    CHOICE = "choice"
    MOMENT = "moment"
    TEXTS = "texts"
    VARIABLES = "variables"
    OBJECT = "object"


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `example` is a right value as a file has it; `least` and `most` are allowed; None: no default."""

    key: str
    shape: Shape
    meaning: str
    example: Any
    default: Any = None
    least: Any = None
    most: Any = None
    choices: tuple[str, ...] = ()


def _words(members: type[StrEnum]) -> tuple[str, ...]:
    return tuple(member.value for member in members)


_T = Shape

COMMANDS: Final = (
    Field("shell", _T.TEXT, "A line for /bin/sh.", "/usr/local/bin/backup --all"),
    Field("sql", _T.TEXT, "Statements: one transaction, exactly once.", "refresh materialized view totals"),
    Field(
        "http", _T.TEXT, "A URL to call; method, headers, body and more go into args.", "https://example.org/refresh"
    ),
    Field("python", _T.TEXT, "A function: package.module:function.", "myapp.reports:send_daily"),
)
"""What a job runs: one of these, named as its kind."""

FIELDS: Final = (
    Field("args", _T.OBJECT, "Keywords of a function, settings of the other kinds.", {"month": "2027-01"}, {}),
    Field("schedule", _T.LINES, "Five cron fields, six with seconds, @daily, @every 15m, @at, @manual.", "0 3 * * *"),
    Field("timezone", _T.TEXT, "IANA name of the zone that the schedule is read in.", "Europe/Berlin"),
    Field("enabled", _T.FLAG, "False: start nothing. A pause by hand is left as it is.", False, True),
    Field("starts_at", _T.MOMENT, "Never before; in the zone, if it has no offset.", "2027-01-31T09:00"),
    Field("ends_at", _T.MOMENT, "Never after.", "2027-12-31T18:00"),
    Field("exclude", _T.TEXTS, "Names of calendars: their days are skipped.", ["holidays"], []),
    Field("jitter", _T.DURATION, "Start up to so much later, always the same.", "5m", _ZERO, _ZERO, _DAY),
    Field("dst_gap", _T.CHOICE, "A fixed time that the clock jumps over.", "skip", "run_after", choices=_words(DstGap)),
    Field(
        "dst_repeat", _T.CHOICE, "A fixed time that the clock shows twice.", "last", "first", choices=_words(DstRepeat)
    ),
    Field(
        "overlap", _T.CHOICE, "What a due time does while a run is live.", "queue_one", "skip", choices=_words(Overlap)
    ),
    Field("max_running", _T.INTEGER, "With overlap allow: so many at a time.", 3, least=1, most=LARGEST),
    Field("catch_up", _T.CHOICE, "Which of the missed times are run.", "all", "latest", choices=_words(CatchUp)),
    Field("catch_up_window", _T.DURATION, "None that is older than this.", "6h", least=_INSTANT),
    Field("catch_up_limit", _T.INTEGER, "With catch_up all: so many.", 10, 100, 1, 10_000),
    Field("max_attempts", _T.INTEGER, "The first attempt included.", 3, 1, 1, 100_000),
    Field("retry_delay", _T.DURATION, "Before the second attempt.", "5m", timedelta(seconds=30), _ZERO, _YEAR),
    Field("retry_backoff", _T.NUMBER, "How each pause grows.", 1.5, 2.0, 1, 100),
    Field("retry_max_delay", _T.DURATION, "No pause is longer.", "2h", _HOUR, _ZERO, _YEAR),
    Field("timeout", _T.DURATION, "How long an attempt may take.", "50s", _HOUR, _INSTANT, _YEAR),
    Field("kill_grace", _T.DURATION, "From TERM to KILL.", "30s", timedelta(seconds=10), _ZERO, _HOUR),
    Field("memory_limit_mb", _T.INTEGER, "Of the whole process tree; stopped above it.", 512, least=1, most=LARGEST),
    Field("output_limit_kb", _T.INTEGER, "How much output is kept.", 256, 64, 1, 10_240),
    Field("history", _T.CHOICE, "failures: of what went well only the last run is kept.", "failures", "all",
          choices=("all", "failures")),
    Field("keep_for", _T.DURATION, "How long history is kept.", "90d", least=_INSTANT),
    Field("late_after", _T.DURATION, "Alert where it has not started so long after its time.", "15m", least=_INSTANT),
    Field("long_after", _T.DURATION, "Alert where it runs longer.", "2h", least=_INSTANT),
    Field("pause_after", _T.INTEGER, "Disable it after so many failures in a row.", 10, least=1, most=100_000),
    Field("redact", _T.TEXTS, "Regular expressions: what they match is masked in alerts.", ["password=[^ ]+"], []),
    Field("heartbeat_url", _T.TEXT, "A monitor to call at each start and end, or env:NAME.", "env:BACKUP_PING"),
    Field("queue", _T.TEXT, "Which workers may run it.", "reports", "default"),
    Field("priority", _T.INTEGER, "Higher goes first.", 10, 0, -32_768, 32_767),
    Field("env", _T.VARIABLES, "Variables of the command.", {"LEVEL": "info"}, {}),
    Field("env_from", _T.TEXTS, "Names of the worker's own variables to pass on: for secrets.", ["API_TOKEN"], []),
    Field("working_dir", _T.TEXT, "Where the command starts.", "/srv/app"),
    Field("idempotent", _T.FLAG, "Twice, or twice at once, does no harm; check asks.", True, False),
    Field("check_ignore", _T.VARIABLES, "Rules of check to leave out, each with the reason.", {"PGC202": "why"}, {}),
    Field("tags", _T.TEXTS, "Words for searching and for alert routes.", ["reports"], []),
)  # fmt: skip
"""In the order in which a job is written down."""

FIELD: Final = {field.key: field for field in (*COMMANDS, *FIELDS)}
KINDS: Final = {field.key: Kind(field.key) for field in COMMANDS}
WHEN: Final = ("schedule", "timezone", "starts_at", "ends_at", "exclude", "dst_gap", "dst_repeat")
"""What decides when a job is due."""
