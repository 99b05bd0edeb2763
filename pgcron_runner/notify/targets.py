"""What a channel's target may be, where a worker finds it, and what of it may be shown. It sends nothing.

env:NAME, file:PATH         where a worker finds the target
pagerduty://ROUTING_KEY     Events v2, one incident there for one here   [?region=eu, or ?url=https://another.endpoint]
webhook+https://HOST/PATH   our own JSON, signed where a secret is given [?secret=env:NAME]; also webhook+http
anything else               a URL of Apprise: slack://, mailto://, ntfy://, tgram://, msteams://, ...
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit

from pgcron_runner.errors import InvalidInput, PgcronError
from pgcron_runner.notify.redaction import forms_of

PAGERDUTY, WEBHOOKS = "pagerduty", ("webhook+http", "webhook+https")
_REFERENCE = re.compile(r"(env|file):(.+)", re.DOTALL)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://.+", re.DOTALL)
_EXAMPLE = "slack://TOKEN_A/TOKEN_B/TOKEN_C, pagerduty://ROUTING_KEY, or env:OPS_URL"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HOST = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d*)?", re.ASCII)
_LONGEST = 65_536
_SHORTEST_SECRET = 4
# Of these the place of the host is taken by a host; elsewhere a token may stand there, and a host is of no interest.
_WITH_HOST = frozenset(
    name + end
    for name in ("apprise", "form", "gotify", "json", "mailto", "mmost", "nctalk", "rocket", "webhook+http", "xml")
    for end in ("", "s")
)
# Settings of Apprise's URLs that would be masked in every error.
_NO_SECRETS = frozenset((
    "text", "html", "markdown", "insecure", "starttls", "split", "truncate", "upstream", "true", "false",
    "http", "https",
))  # fmt: skip


class UnresolvedTarget(PgcronError):
    """The reference leads to nothing on this host."""


@dataclass(frozen=True, slots=True)
class Address:
    """A target whose references have been followed. `secret` signs webhooks and is no part of `url`; never print it."""

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False)


def scheme_of(target: str) -> str | None:
    """The scheme of a URL in small letters; None where it is none."""
    found = _SCHEME.fullmatch(target.strip())
    return None if found is None else found[1].lower()


def is_reference(target: str) -> bool:
    """Whether a worker is to look elsewhere for it."""
    return _REFERENCE.fullmatch(target.strip()) is not None


def address_of(target: str, environ: Mapping[str, str]) -> Address:
    """Where messages go, with all references followed. Raises UnresolvedTarget, which names what leads nowhere."""
    url = resolve_target(target, environ)
    if scheme_of(url) not in WEBHOOKS:
        return Address(url)
    url, secret = split_secret(url)
    return Address(url, None if secret is None else resolve_target(secret, environ))


def resolve_target(target: str, environ: Mapping[str, str]) -> str:
    """What a target stands for, with a reference followed. Raises UnresolvedTarget, which names the reference."""
    found = _REFERENCE.fullmatch(target.strip())
    if found is None:
        return target.strip()
    kind, name = found[1], found[2].strip()
    if kind == "file":
        return _first_line(name)
    value = environ.get(name, "").strip()
    if not value:
        raise UnresolvedTarget(f"there is no environment variable {name}")
    return value


def _first_line(name: str) -> str:
    try:
        # Somebody may have put a pipe there, which must not stop a worker.
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnresolvedTarget(f"{name} is not a file")
            text = file.read(_LONGEST).decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UnresolvedTarget(f"the file {name} cannot be read: {reason}") from None
    line = text.strip().partition("\n")[0].strip() if text.strip() else ""
    if not line:
        raise UnresolvedTarget(f"the file {name} is empty")
    return line


def split_secret(url: str) -> tuple[str, str | None]:
    """A webhook's URL without its `?secret=`, as it was written otherwise, and what that says."""
    rest, mark, query = url.partition("?")
    secret, kept = None, []
    for pair in query.split("&") if mark else []:
        name, _, value = pair.partition("=")
        if name == "secret":
            secret = unquote_plus(value)
        else:
            kept.append(pair)
    return rest + ("?" + "&".join(kept) if kept else ""), secret


def check_target(target: str, environ: Mapping[str, str]) -> str | None:
    """Raises InvalidInput for what no worker could ever use. Else a warning, or None.

    What a reference leads to may be there for the workers alone, so that is a warning. Loads Apprise for its own.
    """
    if not is_reference(target):
        return _check_url(target, environ)
    _check_reference("target", target)
    try:
        url = resolve_target(target, environ)
    except UnresolvedTarget as unresolved:
        return f"here, {unresolved}. The workers must have it."
    try:
        return _check_url(url, environ)
    except InvalidInput as error:
        # Never the URL itself: that it is secret is why it is a reference.
        raise InvalidInput("target", target, f"leads here to what {error.problem}", example=error.example) from None


def _check_reference(field: str, reference: str) -> None:
    kind, name = reference.strip().split(":", 1)
    if kind == "env" and not _NAME.fullmatch(name):
        raise InvalidInput(field, reference, "does not name an environment variable", example="env:OPS_URL")
    if kind == "file" and not Path(name).is_absolute():
        raise InvalidInput(field, reference, "is not a whole path", example="file:/run/secrets/ops-url")


def _check_url(url: str, environ: Mapping[str, str]) -> str | None:
    scheme = scheme_of(url)
    if scheme is None:
        raise InvalidInput("target", describe_target(url), "is not a URL", example=_EXAMPLE)
    if scheme == PAGERDUTY:
        _check_pager(url)
    elif scheme in WEBHOOKS:
        return _check_webhook(url, environ)
    else:
        _check_with_apprise(url, scheme)
    return None


def _check_pager(url: str) -> None:
    split = _split(url)
    problem = None if split.netloc else "has no routing key"
    if "@" in split.netloc or split.path.strip("/"):
        # Apprise's own URL for it has two keys and a source.
        problem = "has more than one routing key"
    if problem is not None:
        raise InvalidInput("target", "pagerduty://…", problem, example="pagerduty://ROUTING_KEY")


def _check_webhook(url: str, environ: Mapping[str, str]) -> str | None:
    url, secret = split_secret(url)
    if not _split(url).hostname:
        raise InvalidInput("target", f"{scheme_of(url)}://…", "has no host", example="webhook+https://example.org/hook")
    if secret is None:
        return None
    if not secret:
        raise InvalidInput("target", describe_target(url), "has an empty secret", example="…?secret=env:HOOK_SECRET")
    if is_reference(secret):
        _check_reference("secret", secret)
        try:
            resolve_target(secret, environ)
        except UnresolvedTarget as unresolved:
            return f"here, {unresolved}. The workers must have it, since it signs."
    return None


def _split(url: str) -> SplitResult:
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        # Its words quote what may be part of a password.
        problem = "is not a URL: the host or the port after it is none"
        raise InvalidInput("target", describe_target(url), problem, example=_EXAMPLE) from None
    return split


def _check_with_apprise(url: str, scheme: str) -> None:
    from pgcron_runner.notify.services import is_understood, known_schemes, template_of

    if is_understood(url):
        return
    known = known_schemes()
    if scheme in known:
        problem = f"lacks something that {scheme}:// needs, or has it in the wrong place"
        raise InvalidInput("target", f"{scheme}://…", problem, example=template_of(scheme) or _EXAMPLE)
    if scheme in ("http", "https"):
        problem, example = "is a web address; for JSON of our own, put webhook+ in front", f"webhook+{scheme}://…"
        raise InvalidInput("target", f"{scheme}://…", problem, example=example)
    import difflib

    near = difflib.get_close_matches(scheme, [*known, PAGERDUTY, *WEBHOOKS], n=3)
    meant = f" (did you mean {' or '.join(f'{name}://' for name in near)}?)" if near else ""
    problem = f"is not a scheme that Apprise or this program knows{meant}"
    raise InvalidInput("target", f"{scheme}://…", problem, example=_EXAMPLE)


def describe_target(target: str) -> str:
    """What a listing may show: a reference as it is, of a URL no more than its scheme, and a host that is one."""
    target = target.strip()
    if is_reference(target):
        return target
    scheme = scheme_of(target)
    if scheme is None:
        return "(not a URL)"
    if scheme not in _WITH_HOST:
        return f"{scheme}://…"
    # A password with a slash or an at sign in it would move the place of the host.
    place, _, rest = re.split(r"://", target, maxsplit=1)[1].partition("?")[0].partition("/")
    user, at, host = place.rpartition("@")
    found = _HOST.fullmatch(host)
    if found is None or "@" in user or "@" in rest:
        return f"{scheme}://…"
    return f"{scheme}://{'…' + at if at else ''}{found[1]}" + ("/…" if rest else "")


def secrets_of(url: str) -> frozenset[str]:
    """All that may be secret in a URL: itself, and its parts but for the names in its query, and a host that is one."""
    rest, _, query = url.partition("://")[2].partition("?")
    place, _, path = rest.partition("/")
    user, _, _ = place.rpartition("@")
    if scheme_of(url) in _WITH_HOST:
        place = user
    values = [pair.partition("=")[2] for pair in query.split("&")]
    parts = {url, query, place, user, path, *values, rest if user or path else ""}
    parts |= {piece for part in (place, path, *map(unquote_plus, values)) for piece in re.split(r"[/:@,?&=]", part)}
    forms = {form for part in parts for meant in (part, unquote(part), unquote_plus(part)) for form in forms_of(meant)}
    return frozenset(form for form in forms if len(form) >= _SHORTEST_SECRET and form.lower() not in _NO_SECRETS)
