"""A channel's own text, as a Jinja2 template in a sandbox. A template that fails never keeps a message back.

The variables are the facts of the alert (job, event, run, error, output, failures, ...), `alerts` (all of them, in a
digest), and the filter `when` for instants: `{{ scheduled_for | when(timezone) }}`. A first line `title: ...` is the
title.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pgcron_runner.errors import InvalidInput
from pgcron_runner.notify.messages import Message, when

_MOST_CHARACTERS = 20_000
_EXAMPLE = "title: {{ job }} {{ event }}"


def check_template(text: str) -> None:
    """Raises InvalidInput for what is no template. What it says of an alert is seen when it is used."""
    from jinja2 import TemplateError

    try:
        _environment().from_string(text)
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        where = f" (line {line})" if line else ""
        raise InvalidInput("template", text[:60], f"is no template: {error}{where}", example=_EXAMPLE) from None


def render_template(text: str, payloads: Sequence[Mapping[str, Any]], built_in: Message) -> Message:
    """The message that a template makes; where it fails, the built-in one with a line that says so."""
    facts = dict(payloads[-1]) | {"alerts": list(payloads)}
    try:
        written = _environment().from_string(text).render(**facts)[:_MOST_CHARACTERS]
    except Exception as error:  # whatever a template does must not keep the message back
        return Message(
            built_in.title, f"{built_in.body}\n(the channel's template failed: {type(error).__name__}: {error})"
        )
    first, _, rest = written.partition("\n")
    if first.lower().startswith("title:"):
        return Message(first[6:].strip() or built_in.title, rest.strip())
    return Message(built_in.title, written.strip())


def _environment() -> Any:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(autoescape=False)
    environment.filters["when"] = when
    return environment
