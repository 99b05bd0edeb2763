"""Checks of single values of a job that need no database: one rule each, for all doors."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pgcron_runner.errors import InvalidInput
from pgcron_runner.manifest.texts import parse_instant, parse_queue
from pgcron_runner.model import Kind, Overlap

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_UNSTORABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_command(kind: Kind, text: str) -> str:
    """What a job runs, as it is kept. Raises InvalidInput."""
    if not text.strip():
        raise InvalidInput(kind.value, text, "is empty", example="--shell /usr/local/bin/backup")
    if kind is Kind.PYTHON and not _FUNCTION.fullmatch(text.strip()):
        raise InvalidInput("python", text, "does not name a function", example="myapp.reports:send_daily")
    return text.strip() if kind is Kind.HTTP else text


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
