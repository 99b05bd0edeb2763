"""What can be told of a job: the words for each event, and how bad it is. Pure; it knows no message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Severity(IntEnum):
    """How bad it is; a digest begins with the worst."""

    GOOD = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Event:
    """How it is said of one job and of several: "backup failed", "3 jobs failed"."""

    one: str
    many: str
    severity: Severity


_EVENTS = {
    "failed": Event("failed", "failed", Severity.ERROR),
    "timed_out": Event("timed out", "timed out", Severity.ERROR),
    "lost": Event("was lost with its worker", "were lost with their workers", Severity.ERROR),
    "launch_failed": Event("could not be started", "could not be started", Severity.ERROR),
    "invalid": Event("cannot be scheduled", "cannot be scheduled", Severity.ERROR),
    "missed": Event("was missed", "were missed", Severity.WARNING),
    "late": Event("has not started in time", "have not started in time", Severity.WARNING),
    "long": Event("is taking too long", "are taking too long", Severity.WARNING),
    "acknowledged": Event("is being looked at", "are being looked at", Severity.INFO),
    "test": Event("is a test", "are tests", Severity.INFO),
    "recovered": Event("works again", "work again", Severity.GOOD),
}
# What is over has its own words: nothing had failed where a run was only late.
_RECOVERED = {
    "late": Event("runs again", "run again", Severity.GOOD),
    "long": Event("has ended at last", "have ended at last", Severity.GOOD),
    "invalid": Event("can be scheduled again", "can be scheduled again", Severity.GOOD),
}
FAILURES = ("failed", "timed_out", "lost", "launch_failed")


def name_of(facts: Mapping[str, Any]) -> str:
    """The event's name; an empty text where there is none."""
    return str(facts.get("event") or "")


def event_of(facts: Mapping[str, Any]) -> Event:
    """The words for what an alert tells. An event of a newer release is called by its name."""
    name = name_of(facts)
    if name == "recovered" and facts.get("kind_of_incident") in _RECOVERED:
        return _RECOVERED[facts["kind_of_incident"]]
    words = name.replace("_", " ") or "has something to tell"
    return _EVENTS.get(name) or Event(words, words, Severity.ERROR)
