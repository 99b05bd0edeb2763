"""A channel's own text, as a Jinja2 template in a sandbox. A template that fails never keeps a message back.

The variables are the facts of the alert (`FACTS`), `alerts` (all of them, in a digest; the other variables are those of
the last one), `title` and `text` (the built-in message), and the filter `when` for instants:
`{{ scheduled_for | when(timezone) }}`. A first line `title: ...` is the title.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pgcron_runner.errors import InvalidInput
from pgcron_runner.notify.limits import TookTooLong, limited
from pgcron_runner.notify.markup import cleaned, one_line
from pgcron_runner.notify.messages import Message, when

FACTS = frozenset((
    "job", "kind", "queue", "tags", "owner", "timezone", "event", "incident", "kind_of_incident", "incident_key",
    "created_at", "run", "status", "scheduled_for", "started_at", "finished_at", "attempt", "max_attempts", "exit_code",
    "error", "reason", "output", "worker", "host", "failures", "since", "next_run_at", "missed_count", "missed_until",
    "problem", "repeat", "acknowledged_by", "was", "because", "paused_reason", "resent", "notes", "channel",
))  # fmt: skip
_OTHERS = frozenset({"alerts", "title", "text", "id"})
_MOST_CHARACTERS = 20_000
_SECONDS = 2.0
_BYTES = 256 * 1024 * 1024
_EXAMPLE = "title: {{ job }} {{ event }}"
_SAMPLE = {"job": "backup", "event": "failed", "run": 4711, "failures": 1, "timezone": "UTC", "output": "no space left"}


def check_template(text: str) -> None:
    """Raises InvalidInput for what is no template, names facts that no alert has, or fails with a simple alert."""
    from jinja2 import TemplateError, meta

    environment = _environment()
    try:
        unknown = meta.find_undeclared_variables(environment.parse(text)) - FACTS - _OTHERS - environment.globals.keys()
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        raise _refused(text, f"is no template: {error}" + (f" (line {line})" if line else "")) from None
    if unknown:
        known = ", ".join(sorted(FACTS))
        raise _refused(text, f"asks for {', '.join(sorted(unknown))}, which no alert has. There are: {known}")
    try:
        _write(text, [_SAMPLE], Message("backup failed", "no space left"))
    except Exception as error:
        raise _refused(text, f"fails with an alert about a job: {_words(error)}") from None


def render_template(text: str, alerts: Sequence[Mapping[str, Any]], built_in: Message, longest: int) -> Message:
    """The message that a template makes; where it fails, the built-in one with a line that says so."""
    try:
        written = _write(text, alerts, built_in)
    except Exception as error:  # whatever a template does must not keep the message back
        # In front, so that a service for short messages does not cut it.
        note = f"(The channel's template failed: {one_line(_words(error), 200)})"
        return Message(built_in.title, f"{note}\n{built_in.body}")
    first, _, rest = written.partition("\n")
    title = built_in.title
    if first.lower().startswith("title:"):
        title, written = one_line(first[6:], 200) or title, rest
    return Message(title, written.strip()[:longest] or built_in.body)


def _write(text: str, alerts: Sequence[Mapping[str, Any]], built_in: Message) -> str:
    variables = {"title": built_in.title, "text": built_in.body} | dict(alerts[-1]) | {"alerts": list(alerts)}
    written = ""
    with limited(_SECONDS, memory=_BYTES):
        for piece in _environment().from_string(text).generate(**variables):
            written += piece
            if len(written) > _MOST_CHARACTERS:
                break
    return cleaned(written[:_MOST_CHARACTERS])


def _environment() -> Any:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(autoescape=False)
    environment.filters["when"] = when
    return environment


def _words(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    return str(error) if isinstance(error, TookTooLong) else f"{type(error).__name__}: {error}"


def _refused(text: str, problem: str) -> InvalidInput:
    return InvalidInput("template", one_line(text, 60), problem, example=_EXAMPLE)
