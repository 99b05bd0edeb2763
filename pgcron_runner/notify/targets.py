"""What a channel's target may be, and what of it may be shown. It sends nothing.

env:NAME, file:PATH         where a worker finds the target
pagerduty://ROUTING_KEY     Events v2, one incident there for one here   [?url=https://another.endpoint]
webhook+https://HOST/PATH   our own JSON, signed where a secret is given [?secret=...]; also webhook+http
anything else               a URL of Apprise: slack://, mailto://, ntfy://, tgram://, msteams://, ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from pgcron_runner.errors import InvalidInput, PgcronError

PAGERDUTY, WEBHOOKS = "pagerduty", ("webhook+http", "webhook+https")
_REFERENCE = re.compile(r"(env|file):(.+)", re.DOTALL)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://.+", re.DOTALL)
_EXAMPLE = "slack://TOKEN_A/TOKEN_B/TOKEN_C, pagerduty://ROUTING_KEY, or env:OPS_URL"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SHORTEST_SECRET = 4


class UnresolvedTarget(PgcronError):
    """The reference leads to nothing on this host."""


def scheme_of(target: str) -> str | None:
    """The scheme of a URL in small letters; None where it is none."""
    found = _SCHEME.fullmatch(target.strip())
    return None if found is None else found[1].lower()


def is_reference(target: str) -> bool:
    """Whether a worker is to look elsewhere for it."""
    return _REFERENCE.fullmatch(target.strip()) is not None


def resolve_target(target: str, environ: Mapping[str, str]) -> str:
    """The URL that a target stands for, with a reference followed. Raises UnresolvedTarget, which names it."""
    found = _REFERENCE.fullmatch(target.strip())
    if found is None:
        return target.strip()
    kind, name = found[1], found[2].strip()
    if kind == "env":
        value = environ.get(name, "")
        if not value.strip():
            raise UnresolvedTarget(f"this worker has no environment variable {name}")
        return value.strip()
    try:
        lines = Path(name).read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UnresolvedTarget(f"the file {name} cannot be read: {reason}") from None
    if not lines or not lines[0].strip():
        raise UnresolvedTarget(f"the first line of the file {name} is empty")
    return lines[0].strip()


def check_target(target: str, environ: Mapping[str, str]) -> str | None:
    """Raises InvalidInput for what no worker could ever use. Else a warning, or None.

    What a reference leads to may be there for the workers alone, so that is a warning. Loads Apprise for its own.
    """
    if not is_reference(target):
        _check_url(target)
        return None
    kind, name = target.strip().split(":", 1)
    if kind == "env" and not _NAME.fullmatch(name):
        raise InvalidInput("target", target, "does not name an environment variable", example="env:OPS_URL")
    if kind == "file" and not name.startswith("/"):
        raise InvalidInput("target", target, "is not a whole path", example="file:/run/secrets/ops-url")
    try:
        url = resolve_target(target, environ)
    except UnresolvedTarget as unresolved:
        return f"here, {unresolved}. The workers must have it."
    try:
        _check_url(url)
    except InvalidInput as error:
        # Never the URL itself: that it is secret is why it is a reference.
        raise InvalidInput("target", target, f"leads here to what {error.problem}", example=_EXAMPLE) from None
    return None


def _check_url(url: str) -> None:
    scheme = scheme_of(url)
    if scheme is None:
        raise InvalidInput("target", describe_target(url), "is not a URL", example=_EXAMPLE)
    if scheme == PAGERDUTY:
        if not urlsplit(url).netloc:
            raise InvalidInput("target", f"{scheme}://", "has no routing key", example="pagerduty://ROUTING_KEY")
    elif scheme in WEBHOOKS:
        if not urlsplit(url).hostname:
            raise InvalidInput("target", f"{scheme}://", "has no host", example="webhook+https://example.org/hook")
    else:
        _check_with_apprise(url, scheme)


def _check_with_apprise(url: str, scheme: str) -> None:
    from pgcron_runner.notify.services import is_understood, known_schemes

    if is_understood(url):
        return
    known = known_schemes()
    if scheme in known:
        problem, example = f"lacks something that {scheme}:// needs, or has it in the wrong place", _EXAMPLE
    else:
        import difflib

        near = difflib.get_close_matches(scheme, [*known, PAGERDUTY, *WEBHOOKS], n=3)
        meant = f"; did you mean {' or '.join(f'{name}://' for name in near)}?" if near else ""
        problem, example = f"is not a scheme that Apprise or this program knows{meant}", _EXAMPLE
    raise InvalidInput("target", f"{scheme}://", problem, example=example)


def describe_target(target: str) -> str:
    """What a listing may show: a reference as it is, of a URL no more than its scheme, and the host of our own."""
    target = target.strip()
    if is_reference(target):
        return target
    scheme = scheme_of(target)
    if scheme is None:
        return "(not a URL)"
    if scheme in WEBHOOKS:
        return f"{scheme}://{urlsplit(target).hostname or ''}/…"
    return f"{scheme}://…"


def secrets_of(url: str) -> frozenset[str]:
    """All that may be secret in a URL: itself, and each of its parts, as written and as meant."""
    parts = {url, url.partition("://")[2]}
    try:
        split = urlsplit(url)
        parts |= {split.netloc, split.username or "", split.password or "", split.hostname or "", split.query}
        parts |= {piece for piece in re.split(r"[/:@?&=,]", url.partition("://")[2]) if piece}
        parts |= {value for _, value in parse_qsl(split.query)}
    except ValueError:
        pass
    parts |= {unquote(part) for part in parts}
    return frozenset(part for part in parts if len(part) >= _SHORTEST_SECRET)
