"""Alerts for tests, with facts as the triggers write them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pgcron_runner.model import Alert, Channel

NOW = datetime(2026, 3, 1, 2, 0, 9, tzinfo=UTC)
TOKEN = "s3cr3t-1-token"
KEY = "pgcron/here/12"
FACTS: dict[str, Any] = {
    "job": "backup",
    "kind": "shell",
    "queue": "default",
    "owner": "ops",
    "timezone": "Europe/Berlin",
    "worker": "w1",
    "host": "db-1",
    "run": 4711,
    "scheduled_for": "2026-03-01T02:00:00+00:00",
    "started_at": "2026-03-01T02:00:00.5+00:00",
    "finished_at": "2026-03-01T02:00:09+00:00",
    "attempt": 3,
    "max_attempts": 3,
    "exit_code": 2,
    "error": "exited with code 2",
    "output": "copying\nno space left",
    "failures": 1,
    "incident": 12,
    "kind_of_incident": "failing",
    "since": "2026-03-01T02:00:09+00:00",
    "next_run_at": "2026-03-02T02:00:00+00:00",
}


def facts(event: str = "failed", *without: str, **more: Any) -> dict[str, Any]:
    """What a renderer is given: the facts of one alert, some left out, others added."""
    kept = {key: value for key, value in FACTS.items() if key not in without}
    return kept | {"event": event, "incident_key": KEY, "created_at": NOW.isoformat(), "id": 1} | more


def alert(event: str = "failed", number: int = 1, **more: Any) -> Alert:
    return Alert(number, event, "backup", KEY, FACTS | more, NOW, 1)


def channel(target: str, number: int = 1, **columns: Any) -> Channel:
    return Channel(number, "ops", target, **columns)
