"""A job's definition as options: what can be said of a job, and the checks that need no database."""

from __future__ import annotations

from typing import Any

from pgcron_runner.cli.options import WrongUse, duration, option
from pgcron_runner.manifest.checks import (
    bounds,
    calendars,
    check_args,
    check_command,
    check_heartbeat_url,
    check_max_running,
    check_name,
    pattern,
    remark_on,
    tag_of,
    variable,
    variables,
)
from pgcron_runner.manifest.fields import FIELD, LARGEST
from pgcron_runner.model import Kind

# What is checked, and how, is the same for files.
__all__ = [
    "bounds",
    "calendars",
    "check_args",
    "check_heartbeat_url",
    "check_max_running",
    "check_name",
    "pattern",
    "remark_on",
    "tag_of",
    "variable",
    "variables",
]

_WHAT, WHEN, _WHERE = "What (one of the first four)", "When", "Where and how"
_CLASH, _RETRY, _LIMITS = "When runs meet, or nobody was there", "When it fails", "Limits"
_TELL = "Who is to know"


def _option(flag: str, metavar: str | None, panel: str, text: str, **more: Any) -> Any:
    return option(flag, metavar, text, rich_help_panel=panel, **more)


def _duration(flag: str, panel: str, text: str) -> Any:
    name = flag.removeprefix("--")
    field = FIELD[name.replace("-", "_")]
    return _option(flag, "DURATION", panel, text, parser=duration(name, minimum=field.least, maximum=field.most))


def _number(flag: str, metavar: str, panel: str, text: str, *, key: str | None = None) -> Any:
    field = FIELD[key or flag.removeprefix("--").replace("-", "_")]
    # What has no default of its own, and what Postgres alone bounds, is not worth showing.
    most = field.most if field.most != LARGEST else None
    return _option(flag, metavar, panel, text, min=field.least, max=most, show_default=field.default is not None)


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
JITTER = _duration("--jitter", WHEN, "Start up to so much later, always the same.")
DST_GAP = _option("--dst-gap", None, WHEN, "A fixed time that the clock jumps over.", show_default=True)
DST_REPEAT = _option("--dst-repeat", None, WHEN, "A fixed time that the clock shows twice.", show_default=True)
DISABLED = _option("--disabled", None, WHEN, "Start nothing before job resume.")
OVERLAP = _option("--overlap", None, _CLASH, "What a due time does while a run is live.", show_default=True)
MAX_RUNNING = _number("--max-running", "N", _CLASH, "With overlap allow: so many at a time.")
CATCH_UP = _option("--catch-up", None, _CLASH, "Which of the missed times are run.", show_default=True)
CATCH_UP_WINDOW = _duration("--catch-up-window", _CLASH, "None that is older than this.")
CATCH_UP_LIMIT = _number("--catch-up-limit", "N", _CLASH, "With catch-up all: so many.")
ATTEMPTS = _number("--attempts", "N", _RETRY, "The first one included.", key="max_attempts")
RETRY_DELAY = _duration("--retry-delay", _RETRY, "Before the second attempt (30s).")
RETRY_BACKOFF = _number("--retry-backoff", "X", _RETRY, "How each pause grows.")
RETRY_MAX_DELAY = _duration("--retry-max-delay", _RETRY, "No pause is longer (1h).")
TIMEOUT = _duration("--timeout", _LIMITS, "How long an attempt may take (1h).")
KILL_GRACE = _duration("--kill-grace", _LIMITS, "From TERM to KILL (10s).")
MEMORY_LIMIT = _number(
    "--memory-limit", "MB", _LIMITS, "Of the whole process tree; above, it is stopped.", key="memory_limit_mb"
)
OUTPUT_LIMIT = _number("--output-limit", "kB", _LIMITS, "How much output is kept.", key="output_limit_kb")
KEEP_FOR = _duration("--keep-for", _LIMITS, "How long history is kept (30d).")
LATE_AFTER = _duration("--late-after", _TELL, "Alert where it has not started so long after its time.")
LONG_AFTER = _duration("--long-after", _TELL, "Alert where it runs longer; else far longer than usual.")
PAUSE_AFTER = _number("--pause-after", "N", _TELL, "Disable it after so many failures in a row.")
REDACT = _option("--redact", "REGEX", _TELL, "Mask this in alerts; may be repeated.")
HEARTBEAT_URL = _option("--heartbeat-url", "URL", _TELL, "A monitor to call at /start, the end, /fail; or env:NAME.")
QUEUE = _option("--queue", "NAME", _WHERE, "Which workers may run it.", show_default=True)
PRIORITY = _number("--priority", "N", _WHERE, "Higher goes first.")
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
    text = check_command(kind, text)
    if kind is Kind.HTTP:
        check_args(kind, text, {})
    return kind, text
