"""URLs as jobs and servers write them, taken apart and checked. It must not know what is done with them."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Self
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from pgcron_runner.errors import PgcronError
from pgcron_runner.execution.http.addresses import IpAddress, why_refused

_PORTS = {"http": 80, "https": 443}
# Parsers disagree about these, and what one takes for a host another takes for a path.
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\\ud800-\udfff]")
_USER = re.compile(r"//[^/?#\s]*@")
_LONGEST_SHOWN = 300


class BadUrl(PgcronError):
    """The text is no URL that may be called; the message is what is wrong, to be put after the URL."""


@dataclass(frozen=True, slots=True)
class Url:
    """An http or https URL without user and fragment. `text` is the whole of it, as it was written."""

    scheme: str
    host: str
    port: int
    text: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def origin(self) -> tuple[str, str, int]:
        """Where credentials that were given for it may be sent."""
        return self.scheme, self.host, self.port

    @property
    def place(self) -> str:
        """Host and port, as people write them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def without_user(self) -> Self:
        """The same place, with nobody's name on it."""
        return replace(self, user=None, password=None)


def parse_url(text: str) -> Url:
    """Takes a URL apart. Raises BadUrl in words."""
    if found := _UNSAFE.search(text):
        raise BadUrl("has a blank in it" if found[0] == " " else f"has the character {found[0]!r} in it")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadUrl(f"cannot be read ({error})") from None
    if parts.scheme not in _PORTS:
        raise BadUrl(f"is of the scheme {parts.scheme}, not http or https" if parts.scheme else "names no scheme")
    if not host or port == 0:
        raise BadUrl("names no host" if not host else "names port 0")
    _check_literal(host)
    user, password = _user_of(parts)
    return Url(parts.scheme, host, port or _PORTS[parts.scheme], _plain(parts, host), user, password)


def follow_url(base: Url, location: str) -> Url:
    """Where a `Location` header leads from `base`; a user in it counts for nothing. Raises BadUrl."""
    try:
        joined = urljoin(base.text, location.strip())
    except ValueError as error:
        raise BadUrl(f"cannot be read ({error})") from None
    return parse_url(joined).without_user()


def shown(url: str) -> str:
    """A URL for people, well-formed or not: never with a user or password, and not endlessly long."""
    text = _USER.sub("//", url)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def literal_address(host: str) -> IpAddress | None:
    """The address that a host of digits is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _check_literal(host: str) -> None:
    address = literal_address(host)
    if address is None:
        try:
            # What the resolver takes for an address too: 127.1, 0x7f000001, 2130706433, 0177.0.0.1.
            usual = socket.inet_ntoa(socket.inet_aton(host))
        except (OSError, UnicodeError):
            return
        raise BadUrl(f"writes the address {usual} in an unusual way")
    if (reason := why_refused(address)) is not None:
        raise BadUrl(f"leads to an address that is never called: {reason}")


def _user_of(parts: SplitResult) -> tuple[str | None, str | None]:
    if parts.username is None:
        return None, None
    return unquote(parts.username), unquote(parts.password or "")


def _plain(parts: SplitResult, host: str) -> str:
    netloc = f"[{host}]" if ":" in host else host
    if parts.port is not None and parts.port != _PORTS[parts.scheme]:
        netloc += f":{parts.port}"
    return parts._replace(netloc=netloc, path=parts.path or "/", fragment="").geturl()
