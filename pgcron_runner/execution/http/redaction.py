"""Texts that are shown nowhere, taken out of what others have written. It must not know where they come from.

Best effort: a server that sends a secret back in a disguise of its own is not seen through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

_MASK = "***"
# What is shorter is no secret, and its mask would be all over an innocent text.
_SHORTEST = 4


class Secrets:
    """What is not to be shown, in the forms in which it may come back."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        forms = {form for text in texts for form in _forms(text)}
        self._forms = sorted((form.encode("utf-8", "surrogateescape") for form in forms), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._forms))) if self._forms else None

    def hide(self, text: str) -> str:
        """The text with a mask in place of each."""
        if self._pattern is None:
            return text
        data = text.encode("utf-8", "surrogateescape")
        return self._pattern.sub(_MASK.encode(), data).decode("utf-8", "surrogateescape")

    def stream(self) -> Redactor:
        """The same for a text that comes in pieces."""
        return Redactor(self._forms, self._pattern)


class Redactor:
    """Masks secrets in a stream, also where one is cut in two: it holds back what may be the beginning of one."""

    def __init__(self, forms: list[bytes], pattern: re.Pattern[bytes] | None) -> None:
        self._forms = forms
        self._pattern = pattern
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be shown by now."""
        if self._pattern is None:
            return data
        data = self._held + data
        start = self._beginning(data, 0)
        shown, position = bytearray(), 0
        for found in self._pattern.finditer(data):
            if found.start() >= start:
                break
            shown += data[position : found.start()] + _MASK.encode()
            position = found.end()
            if position > start:
                start = self._beginning(data, position)
        self._held = data[start:]
        return bytes(shown + data[position:start])

    def end(self) -> bytes:
        """What was held back; the stream is over."""
        held, self._held = self._held, b""
        return held if self._pattern is None else self._pattern.sub(_MASK.encode(), held)

    def _beginning(self, data: bytes, position: int) -> int:
        """Where the longest end of `data` begins, from `position` on, that is the beginning of a secret."""
        start = max(position, len(data) - len(self._forms[0]) + 1)
        while start < len(data) and not any(form.startswith(data[start:]) for form in self._forms):
            start += 1
        return start


def _forms(text: str) -> set[str]:
    """A secret as it is, without its scheme (`Bearer …`), and as JSON and URLs would write it."""
    plain = {text.strip(), text.strip().partition(" ")[2].strip()}
    forms = plain | {json.dumps(form)[1:-1] for form in plain} | {quote(form, safe="") for form in plain}
    return {form for form in forms if len(form) >= _SHORTEST}
