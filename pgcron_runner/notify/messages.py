"""What a message says: the facts of an alert as somebody reads them at three in the morning. Pure; it sends nothing.

Two forms: plain text, and Markdown where the channel shows it. Whatever a job has printed or is called is quoted, so
that it can neither change the layout nor call people (`@channel`, `<!here>`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from pgcron_runner.notify.redaction import redact_patterns

_WORDS = {
    "failed": "failed",
    "timed_out": "timed out",
    "lost": "was lost with its worker",
    "launch_failed": "could not be started",
    "late": "has not started in time",
    "missed": "was missed",
    "long": "is taking too long",
    "invalid": "cannot be scheduled",
    "recovered": "works again",
    "acknowledged": "is being looked at",
    "test": "test",
}
_OUTPUT_LINES = 20
_MOST_JOBS = 40
_MENTION = re.compile(r"@(?=\w)|<(?=[!@#])")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>#|~])")


class Form(StrEnum):
    """How the body is written."""

    PLAIN = "plain"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True)
class Message:
    """A title of one line, and a body."""

    title: str
    body: str


def render(payloads: Sequence[Mapping[str, Any]], *, form: Form, zone: str | None = None) -> Message:
    """One message for one alert, or a digest for several. `zone`: the channel's, for times of jobs that have none."""
    if len(payloads) == 1:
        return _single(payloads[0], form, zone)
    return _digest(payloads, form)


def _single(facts: Mapping[str, Any], form: Form, zone: str | None) -> Message:
    if facts.get("event") == "test":
        return Message("pgcron-runner: test", "This channel works. Alerts about jobs will look like this, but longer.")
    title = f"{_name(facts)} {_what(facts)}{_where(facts)}"
    lines = [_quoted(line, form) for line in _sentences(facts, zone)]
    body = "\n".join(lines)
    if output := _output(facts):
        body += _block(output, form)
    if command := _command(facts):
        body += f"\nMore: {_code(command, form)}"
    return Message(_harmless(title), body.strip())


def _digest(payloads: Sequence[Mapping[str, Any]], form: Form) -> Message:
    counts = Counter(_WORDS.get(str(facts.get("event")), str(facts.get("event"))) for facts in payloads)
    title = "; ".join(f"{count} x {words}" for words, count in counts.most_common())
    lines = [f"- {_quoted(_line(facts), form)}" for facts in payloads[:_MOST_JOBS]]
    if len(payloads) > _MOST_JOBS:
        lines.append(f"and {len(payloads) - _MOST_JOBS} more")
    lines.append(f"More: {_code('pgcron-runner incident list', form)}")
    return Message(f"{len(payloads)} alerts: {title}", "\n".join(lines))


def _line(facts: Mapping[str, Any]) -> str:
    reason = facts.get("problem") or facts.get("error") or facts.get("reason") or ""
    first = str(reason).strip().partition("\n")[0][:120]
    return f"{_name(facts)} {_what(facts)}{_where(facts)}" + (f": {_masked(first, facts)}" if first else "")


def _name(facts: Mapping[str, Any]) -> str:
    return str(facts.get("job") or "A job")


def _what(facts: Mapping[str, Any]) -> str:
    event = str(facts.get("event"))
    words = _WORDS.get(event, event)
    if event in ("failed", "timed_out", "lost", "launch_failed") and int(facts.get("failures") or 1) > 1:
        words += f" ({facts['failures']} in a row)"
    return words + (" - still" if facts.get("repeat") else "")


def _where(facts: Mapping[str, Any]) -> str:
    return f" on {facts['host']}" if facts.get("host") else ""


def _sentences(facts: Mapping[str, Any], zone: str | None) -> list[str]:
    zone = facts.get("timezone") or zone
    lines = []
    for label, key in (("Was due", "scheduled_for"), ("Started", "started_at"), ("Ended", "finished_at")):
        if facts.get(key):
            lines.append(f"{label}: {when(facts[key], zone)}")
    if facts.get("missed_count"):
        until = f", until {when(facts['missed_until'], zone)}" if facts.get("missed_until") else ""
        lines.append(f"Missed: {facts['missed_count']} times{until}")
    if facts.get("attempt") and facts.get("max_attempts"):
        lines.append(f"Attempt: {facts['attempt']} of {facts['max_attempts']}")
    if facts.get("exit_code") is not None:
        lines.append(f"Exit code: {facts['exit_code']}")
    for label, key in (("Problem", "problem"), ("Error", "error"), ("Reason", "reason")):
        if facts.get(key) and facts.get("event") != "recovered":
            lines.append(f"{label}: {_masked(str(facts[key]).strip(), facts)}")
    if facts.get("event") == "recovered" and facts.get("failures"):
        lines.append(f"It had failed {facts['failures']} times in a row.")
    if facts.get("acknowledged_by"):
        lines.append(f"Taken on by: {facts['acknowledged_by']}")
    if facts.get("since"):
        lines.append(f"Since: {when(facts['since'], zone)}")
    if facts.get("next_run_at"):
        lines.append(f"Next time: {when(facts['next_run_at'], zone)}")
    return lines


def when(text: str, zone: str | None) -> str:
    """An instant in a zone and in UTC; the text itself where it is none."""
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        return str(text)
    utc = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    if zone in (None, "UTC"):
        return utc
    try:
        return f"{at.astimezone(ZoneInfo(str(zone))):%Y-%m-%d %H:%M:%S%z} ({utc})"
    except (KeyError, ValueError, OSError):
        return utc


def _output(facts: Mapping[str, Any]) -> str:
    if facts.get("event") in ("recovered", "acknowledged"):
        return ""
    lines = str(facts.get("output") or "").rstrip().splitlines()
    return _masked("\n".join(lines[-_OUTPUT_LINES:]), facts)


def _masked(text: str, facts: Mapping[str, Any]) -> str:
    return redact_patterns(text, facts.get("redact") or ())


def _command(facts: Mapping[str, Any]) -> str | None:
    if facts.get("run"):
        return f"pgcron-runner runs show {facts['run']}"
    return f"pgcron-runner incident show {facts['incident']}" if facts.get("incident") else None


def _block(text: str, form: Form) -> str:
    if form is Form.MARKDOWN:
        fenced = text.replace("```", "'''")
        return f"\n\n```\n{_harmless(fenced)}\n```"
    return "\n\n" + "\n".join(f"  | {line}" for line in _harmless(text).splitlines())


def _code(text: str, form: Form) -> str:
    return f"`{text}`" if form is Form.MARKDOWN else text


def _quoted(text: str, form: Form) -> str:
    text = _harmless(text)
    return _MARKDOWN.sub(r"\\\1", text) if form is Form.MARKDOWN else text


def _harmless(text: str) -> str:
    """A zero-width space takes from a mention what makes it one."""
    return _MENTION.sub(lambda found: f"{found[0]}\u200b", text)
