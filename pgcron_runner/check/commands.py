"""5: what the command says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pgcron_runner.check.rules import rule
from pgcron_runner.check.values import Case, Job
from pgcron_runner.model import Kind

_SECRET_NAME: Final = re.compile(r"passw(or)?d|secret|token|api[_-]?key|private[_-]?key|credential", re.IGNORECASE)
_SECRETS: Final = (
    # --password hunter2, API_KEY=abc; not $NAME, ${NAME}, env:NAME.
    re.compile(
        r"(?:passw(?:or)?d|secret|token|api[_-]?key)[\"']?\s*(?:[=:]\s*|\s)[\"']?"
        r"(?!\$|env:|file:|\{|%|<)(?=[^\s\"']*[\d!#+/-])[^\s\"']{6,}",
        re.IGNORECASE,
    ),
    re.compile(r"\w://[^/\s:@$]*:(?!\$|env:)[^/\s@$]+@"),
    re.compile(r"\bBearer\s+(?!env:|\$)[\w.~+/-]{12,}"),
    re.compile(r"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_\w{20,}|xox[abpr]-[\w-]{10,}|sk_live_\w{10,})"),
)


@rule("PGC501", "crontab-percent")
def crontab_percent(case: Case) -> str | None:
    r"""A command has \%, which was right in a crontab.

    There % ends the line, so it is written \%. Here the whole text goes to the shell, which takes \% for % in plain
    words but keeps the backslash within quotes: date "+\%F" prints \2027-01-31.

    Fix: write % alone.
    """
    return r"it has \%, as in a crontab" if case.job.kind == Kind.SHELL and r"\%" in case.job.command else None


@rule("PGC502", "quoting")
def quoting(case: Case) -> str | None:
    """A quotation mark of a shell command is never closed.

    The shell refuses the whole line each time.

    Fix: close it, or give the words one by one: args = {argv = ["/usr/bin/tool", "it's"]}.
    """
    if case.job.kind != Kind.SHELL or "argv" in case.job.args or "<<" in case.job.command:
        return None
    try:
        shlex.split(case.job.command, comments=True)
    except ValueError:
        return "a quotation mark is not closed"
    return None


@rule("PGC503", "secret-in-clear")
def secret_in_clear(case: Case) -> str | None:
    """A password, token or key stands in the definition.

    Whoever may read the table, a backup of it or the file sees it, and it appears in process lists.

    Fix: set it in the worker's environment and name it in env_from, or as env:NAME in http headers; and change
    the secret.
    """
    for place, text in _texts(case.job):
        if any(pattern.search(text) for pattern in _SECRETS):
            return f"{place} has what looks like a secret"
    return None


def _texts(job: Job) -> Iterator[tuple[str, str]]:
    """All that is said, with its place; a value whose name is that of a secret goes as NAME=value."""
    yield "command", job.command
    for name, value in job.env.items():
        yield f"env {name}", f"token={value}1" if _SECRET_NAME.search(name) else value
    yield from _strings("args", job.args)


def _strings(place: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield place, value
        case Mapping():
            for key, item in value.items():
                yield from _strings(f"{place} {key}", f"{key}: {item}" if isinstance(item, str) else item)
        case list():
            yield place, " ".join(map(str, value))
