"""A job's definition as options: what can be said of a job, and the checks that need no database."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pgcron_runner.cli.options import (
    YEAR,
    WrongUse,
    duration,
    option,
    parse_instant,
    parse_queue,
)
from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import Kind, Overlap

_ZERO, _HOUR, _DAY = timedelta(0), timedelta(hours=1), timedelta(days=1)
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_UNSTORABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_WHAT, WHEN, _WHERE = "What (one of the first four)", "When", "Where and how"
_CLASH, _RETRY, _LIMITS = "When runs meet, or nobody was there", "When it fails", "Limits"
_TELL = "Who is to know"


def _option(flag: str, metavar: str | None, panel: str, text: str, **more: Any) -> Any:
    return option(flag, metavar, text, rich_help_panel=panel, **more)


def _duration(flag: str, panel: str, text: str, **more: Any) -> Any:
    bounds = {name: more.pop(name) for name in ("minimum", "maximum") if name in more}
    return _option(flag, "DURATION", panel, text, parser=duration(flag.removeprefix("--"), **bounds), **more)


SHELL = _option("--shell", "CMD", _WHAT, "A line for /bin/sh.")
SQL = _option("--sql", "SQL", _WHAT, "Statements: one transaction, exactly once.")
PYTHON = _option("--python", "MODULE:FUNCTION", _WHAT, "A function of yours.")
HTTP = _option("--http", "URL", _WHAT, "A URL to call; method, headers, body and more go into --args.")
ARGS = _option("--args", "JSON", _WHAT, "A JSON object: keywords of a function, settings of the other kinds.")
SCHEDULE = _option("--schedule", "SCHEDULE", WHEN, "Five cron fields, @daily, @every 15m, @manual; see README.")
TIMEZONE = _option("--timezone", "ZONE", WHEN, "IANA name of the zone that the schedule is read in.")
STARTS_AT = _option("--starts-at", "INSTANT", WHEN, "Never before; in the zone, if it has no offset.")
ENDS_AT = _option("--ends-at", "INSTANT", WHEN, "Never after.")
EXCLUDE = _option("--exclude", "CALENDAR", WHEN, "Skip the days of this calendar; may be repeated.")
JITTER = _duration("--jitter", WHEN, "Start up to so much later, always the same.", minimum=_ZERO, maximum=_DAY)
DST_GAP = _option("--dst-gap", None, WHEN, "A fixed time that the clock jumps over.", show_default=True)
DST_REPEAT = _option("--dst-repeat", None, WHEN, "A fixed time that the clock shows twice.", show_default=True)
DISABLED = _option("--disabled", None, WHEN, "Start nothing before job resume.")
OVERLAP = _option("--overlap", None, _CLASH, "What a due time does while a run is live.", show_default=True)
MAX_RUNNING = _option("--max-running", "N", _CLASH, "With overlap allow: so many at a time.", min=1)
CATCH_UP = _option("--catch-up", None, _CLASH, "Which of the missed times are run.", show_default=True)
CATCH_UP_WINDOW = _duration("--catch-up-window", _CLASH, "None that is older than this.")
CATCH_UP_LIMIT = _option(
    "--catch-up-limit", "N", _CLASH, "With catch-up all: so many.", min=1, max=10_000, show_default=True
)
ATTEMPTS = _option("--attempts", "N", _RETRY, "The first one included.", min=1, max=100_000, show_default=True)
RETRY_DELAY = _duration("--retry-delay", _RETRY, "Before the second attempt (30s).", minimum=_ZERO, maximum=YEAR)
RETRY_BACKOFF = _option("--retry-backoff", "X", _RETRY, "How each pause grows.", min=1, max=100, show_default=True)
RETRY_MAX_DELAY = _duration("--retry-max-delay", _RETRY, "No pause is longer (1h).", minimum=_ZERO, maximum=YEAR)
TIMEOUT = _duration("--timeout", _LIMITS, "How long an attempt may take (1h).", maximum=YEAR)
KILL_GRACE = _duration("--kill-grace", _LIMITS, "From TERM to KILL (10s).", minimum=_ZERO, maximum=_HOUR)
MEMORY_LIMIT = _option("--memory-limit", "MB", _LIMITS, "Of the whole process tree; above, it is stopped.", min=1)
OUTPUT_LIMIT = _option(
    "--output-limit", "kB", _LIMITS, "How much output is kept.", min=1, max=10_240, show_default=True
)
KEEP_FOR = _duration("--keep-for", _LIMITS, "How long history is kept (30d).")
LATE_AFTER = _duration("--late-after", _TELL, "Alert where it has not started so long after its time.")
LONG_AFTER = _duration("--long-after", _TELL, "Alert where it runs longer; else far longer than usual.")
PAUSE_AFTER = _option("--pause-after", "N", _TELL, "Disable it after so many failures in a row.", min=1, max=100_000)
REDACT = _option("--redact", "REGEX", _TELL, "Mask this in alerts; may be repeated.")
HEARTBEAT_URL = _option("--heartbeat-url", "URL", _TELL, "A monitor to call at /start, the end, /fail; or env:NAME.")
QUEUE = _option("--queue", "NAME", _WHERE, "Which workers may run it.", show_default=True)
PRIORITY = _option("--priority", "N", _WHERE, "Higher goes first.", min=-32_768, max=32_767, show_default=True)
ENV = _option("--env", "NAME=VALUE", _WHERE, "A variable; may be repeated.")
ENV_FROM = _option("--env-from", "NAME", _WHERE, "A worker's variable to pass on; may be repeated.")
WORKING_DIR = _option("--working-dir", "FOLDER", _WHERE, "Where the command starts.")
TAG = _option("--tag", "WORD", _WHERE, "For searching; may be repeated.")


def what_to_run(shell: str | None, sql: str | None, python: str | None, http: str | None) -> tuple[Kind, str]:
    """What a job is to run, which must be one thing."""
    said = ((Kind.SHELL, shell), (Kind.SQL, sql), (Kind.PYTHON, python), (Kind.HTTP, http))
    given = [(kind, text) for kind, text in said if text is not None]
    if len(given) != 1:
        how_many = "say what to run" if not given else "say only one thing to run"
        raise WrongUse(f"kind: {how_many}: --shell, --sql, --python or --http. For example: --sql 'analyze'")
    kind, text = given[0]
    if not text.strip():
        raise InvalidInput(kind.value, text, "is empty", example="--shell /usr/local/bin/backup")
    if kind is Kind.PYTHON and not _FUNCTION.fullmatch(text.strip()):
        raise InvalidInput("python", text, "does not name a function", example="myapp.reports:send_daily")
    if kind is Kind.HTTP:
        text = text.strip()
        check_args(kind, text, {})
    return kind, text


def check_args(kind: str, command: str, args: dict[str, Any]) -> None:
    """Raises InvalidInput where a worker could not launch this."""
    if kind == Kind.HTTP:
        from pgcron_runner.execution.http.definition import read_definition

        read_definition(command, args, field="http")


def remark_on(kind: str, command: str) -> str | None:
    """What somebody should know who lets this be run."""
    if kind == Kind.HTTP:
        from pgcron_runner.execution.http.urls import parse_url

        if parse_url(command).password:
            return (
                "whoever may read pgcron.jobs can read the password in this URL; headers can be taken from the "
                """worker's environment: --args '{"headers": {"Authorization": "Basic env:API_LOGIN"}}'"""
            )
    return None


def check_heartbeat_url(url: str) -> str:
    if not re.match(r"(https?://|env:|file:).", url.strip()):
        problem = "is no http address, and no reference to one"
        raise InvalidInput("heartbeat-url", url, problem, example="https://hc.example.org/ping/UUID or env:BACKUP_PING")
    return url.strip()


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        problem = f"is not a regular expression: {error}"
        raise InvalidInput("redact", text, problem, example="'password=[^ ]+'") from None
    return text


def check_name(name: str) -> None:
    if name != name.strip() or not 1 <= len(name) <= 100 or _UNSTORABLE.search(name):
        problem = "is not 1 to 100 characters without blanks at the ends"
        raise InvalidInput("name", name, problem, example="nightly-report")


def bounds(starts_at: str | None, ends_at: str | None, zone: ZoneInfo) -> tuple[datetime | None, datetime | None]:
    starts = None if starts_at is None else parse_instant(starts_at, field="starts-at", zone=zone)
    ends = None if ends_at is None else parse_instant(ends_at, field="ends-at", zone=zone)
    if starts and ends and starts >= ends:
        raise InvalidInput(
            "ends-at", ends_at, "is not after starts-at", example=(starts + timedelta(days=1)).isoformat()
        )
    return starts, ends


def variables(texts: list[str]) -> dict[str, str]:
    variables = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            # The text may be a secret that stands where it should not: only its name is repeated.
            raise InvalidInput("env", name[:20], "has no value", example="LEVEL=info")
        variables[variable("env", name)] = value
    return variables


def variable(field: str, name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise InvalidInput(
            field, name, "is not the name of a variable", example="LEVEL=info" if field == "env" else "API_TOKEN"
        )
    return name


def tag_of(text: str) -> str:
    if not text.strip() or _UNSTORABLE.search(text):
        raise InvalidInput("tag", text, "is not a word", example="reports")
    return text.strip()


def calendars(names: list[str]) -> list[str]:
    """Names of calendars, each once."""
    return list(dict.fromkeys(parse_queue(name, field="exclude") for name in names))


def check_max_running(max_running: int | None, overlap: Overlap) -> None:
    """Raises InvalidInput where the number would mean nothing."""
    if max_running is not None and overlap is not Overlap.ALLOW:
        raise InvalidInput(
            "max-running", max_running, "needs overlap allow", example=f"--overlap allow --max-running {max_running}"
        )
