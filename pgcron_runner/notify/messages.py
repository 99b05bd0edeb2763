"""What a message says about one alert, as somebody reads it at three in the morning. Pure; it sends nothing.

The facts must be presentable (`facts.py`). The worst comes first and the output last, since short services cut the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pgcron_runner.durations import format_duration
from pgcron_runner.notify.events import FAILURES, event_of, name_of
from pgcron_runner.notify.markup import Form, block_of_tail, inline, one_line, shortened

_LONGEST_TITLE = 200
_LONGEST_LINE = 1_000
_OUTPUT_LINES = 20
# What Markdown adds to a value; and how much of one is worth being shown.
_MARKS = 4
_SHORTEST_VALUE = 20
Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """A title of one line, and a body."""

    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a body. `foreign`: the value is a text of others."""

    label: str
    value: str
    foreign: bool = False


def render(facts: Facts, form: Form, zone: str | None = None) -> Message:
    """The message for one alert. `zone`: for the times of jobs that have none of their own."""
    if name_of(facts) == "test":
        who = f" Asked for by {inline(str(facts['owner']), form)}." if facts.get("owner") else ""
        return Message("pgcron-runner: test", f"This channel works. Alerts about jobs will look like this.{who}")
    body = "\n".join(_fitting(_rows(facts, facts.get("timezone") or zone), form)) or "No more is known."
    if not _is_good(facts):
        body += _output(facts, form, room=form.longest - len(body))
    return Message(title_of(facts), body)


def title_of(facts: Facts) -> str:
    """What has happened, on one line of at most 200 characters: job, event and host."""
    job = one_line(job_of(facts), 100)
    if facts.get("because"):
        return one_line(f"{job}: {facts['because']}", _LONGEST_TITLE)
    if name_of(facts) == "acknowledged" and facts.get("acknowledged_by"):
        return one_line(f"{job}: {facts['acknowledged_by']} is looking at it", _LONGEST_TITLE)
    still = "Still: " if facts.get("repeat") else ""
    disabled = " and is disabled" if facts.get("paused_reason") and name_of(facts) in FAILURES else ""
    where = f" on {one_line(str(facts['host']), 60)}" if facts.get("host") else ""
    return one_line(f"{still}{job} {event_of(facts).one}{_how_often(facts)}{disabled}{where}", _LONGEST_TITLE)


def job_of(facts: Facts) -> str:
    """The job's name."""
    return str(facts.get("job") or "A job")


def reason_of(facts: Facts) -> str:
    """Why, in one line; empty where nobody has said."""
    if _is_good(facts):
        return ""
    keys = ("problem",) if name_of(facts) == "invalid" else ("error", "reason")
    text = next((str(facts[key]).strip() for key in keys if facts.get(key)), "")
    return text.partition("\n")[0]


def when(text: object, zone: str | None = None) -> str:
    """An instant in a zone and in UTC; the text itself where it is none."""
    at = _instant(text)
    if at is None:
        return str(text)
    utc = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    if zone in (None, "UTC"):
        return utc
    try:
        return f"{at.astimezone(ZoneInfo(str(zone))):%Y-%m-%d %H:%M:%S%z} ({utc})"
    except (KeyError, ValueError, OSError, OverflowError):
        return utc


def _is_good(facts: Facts) -> bool:
    """What was wrong with the last run is told no more."""
    return name_of(facts) in ("recovered", "acknowledged")


def _how_often(facts: Facts) -> str:
    failures = facts.get("failures") or 0
    match name_of(facts):
        case event if event in FAILURES and failures > 1:
            return f" ({failures} in a row)"
        case "missed" if (facts.get("missed_count") or 0) > 1:
            return f" {facts['missed_count']} times"
        case "recovered" if failures and facts.get("kind_of_incident", "failing") == "failing":
            return f", after {failures} failure{'s' if failures > 1 else ''}"
    return ""


def _rows(facts: Facts, zone: str | None) -> Iterator[Row]:
    yield from _why(facts)
    yield from _how_long(facts, zone)
    yield from _times(facts, zone)
    if facts.get("next_run_at"):
        yield Row("Next time", when(facts["next_run_at"], zone))
    yield from _which(facts)
    if facts.get("resent"):
        yield Row("Note", "this may have come before: the worker that was sending it has died")
    for note in () if _is_good(facts) else facts.get("notes", ()):
        yield Row("Note", note)
    if commands := commands_of(facts):
        yield Row("More", commands, foreign=True)


def _why(facts: Facts) -> Iterator[Row]:
    if _is_good(facts):
        return
    if facts.get("paused_reason"):
        yield Row("Now", f"{facts['paused_reason']}; it starts nothing until it is resumed", foreign=True)
    for label, key in (("Problem", "problem"), ("Error", "error"), ("Reason", "reason")):
        if text := str(facts.get(key) or "").strip():
            yield Row(label, text, foreign=True)
    code = facts.get("exit_code")
    if code is not None and str(code) not in str(facts.get("error") or ""):
        yield Row("Exit code", str(code))
    if facts.get("attempt") and facts.get("max_attempts"):
        yield Row("Attempt", f"{facts['attempt']} of {facts['max_attempts']}")


def _how_long(facts: Facts, zone: str | None) -> Iterator[Row]:
    since, now = facts.get("since"), facts.get("created_at")
    if not since:
        return
    lasted = _span(since, now)
    times = facts.get("failures") or 1
    often = f", {times} times" if times > 1 else ""
    if name_of(facts) == "recovered":
        yield Row("It lasted", f"{lasted or 'a moment'}{often}, since {when(since, zone)}")
    elif times > 1 or facts.get("repeat") or name_of(facts) == "acknowledged":
        yield Row("Since", f"{when(since, zone)}{f', for {lasted}' if lasted else ''}{often}")


def _times(facts: Facts, zone: str | None) -> Iterator[Row]:
    due, started, ended = (facts.get(key) for key in ("scheduled_for", "started_at", "finished_at"))
    if due:
        waits = _span(due, facts.get("created_at")) if name_of(facts) == "late" else None
        yield Row("Was due", when(due, zone) + (f", {waits} ago" if waits else ""))
    if facts.get("missed_until"):
        yield Row("Missed until", when(facts["missed_until"], zone))
    if started:
        runs = _span(started, facts.get("created_at")) if not ended else None
        yield Row("Started", when(started, zone) + (f", {runs} ago" if runs else ""))
    if ended and started:
        yield Row("Ended", f"{when(ended, zone)}, after {_span(started, ended) or '0s'}")
    elif ended and name_of(facts) != "missed":
        yield Row("Ended", when(ended, zone))


def _which(facts: Facts) -> Iterator[Row]:
    parts = [str(facts[key]) for key in ("kind",) if facts.get(key)]
    if facts.get("queue") not in (None, "default"):
        parts.append(f"queue {facts['queue']}")
    if isinstance(facts.get("tags"), list) and facts["tags"]:
        parts.append("tags " + " ".join(map(str, facts["tags"])))
    if facts.get("owner"):
        parts.append(f"of {facts['owner']}")
    if facts.get("worker"):
        parts.append(f"by worker {facts['worker']}")
    if parts:
        yield Row("Job", ", ".join(parts), foreign=True)


def commands_of(facts: Facts) -> str:
    """What to type to see more."""
    if facts.get("run"):
        logs = f"; pgcron-runner runs logs {facts['run']}" if facts.get("output") else ""
        return f"pgcron-runner runs show {facts['run']}{logs}"
    return f"pgcron-runner incident show {facts['incident']}" if facts.get("incident") else ""


def _fitting(rows: Iterator[Row], form: Form) -> Iterator[str]:
    """Each line that there is still room for; a long one is cut."""
    room = form.longest
    for row in rows:
        head = f"{'- ' if form.markdown else ''}{row.label}: "
        longest = min(room - len(head) - _MARKS, _LONGEST_LINE)
        if longest < min(len(row.value), _SHORTEST_VALUE):
            continue
        value = shortened(row.value, longest)
        line = head + (inline(value, form) if row.foreign else value)
        if len(line) < room:
            yield line
            room -= len(line) + 1


def _output(facts: Facts, form: Form, *, room: int) -> str:
    heading = "\n\nOutput, the last of it:\n"
    tail = block_of_tail(str(facts.get("output") or ""), form, lines=_OUTPUT_LINES, room=room - len(heading))
    return heading + tail if tail else ""


def _span(begin: object, end: object) -> str | None:
    """How long it was, in words short enough for a line; None where it is unknown or nothing."""
    first, last = _instant(begin), _instant(end)
    if first is None or last is None or last <= first:
        return None
    exact = last - first
    for unit, least in ((timedelta(hours=1), timedelta(days=2)), (timedelta(minutes=1), timedelta(hours=2))):
        if exact >= least:
            return format_duration(exact // unit * unit)
    return format_duration(timedelta(seconds=max(round(exact.total_seconds()), 1)))


def _instant(text: object) -> datetime | None:
    try:
        at = text if isinstance(text, datetime) else datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
