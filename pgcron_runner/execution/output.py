"""What commands print, kept small and made storable. It must not know where bytes come from or go to.

One rule for all text: what is UTF-8 stays as it is; any other byte becomes its escape (`\\xff`), and so does
half a surrogate pair (`\\ud800`); NUL, which Postgres cannot hold, becomes U+2400 (`␀`). Nothing is ever
unescaped, so a backslash that was printed stays a backslash.
"""

from __future__ import annotations

import codecs

from pgcron_runner.model import Output

_ERRORS = "backslashreplace"
_CONTINUATION = range(0x80, 0xC0)


def storable(text: str) -> str:
    """`text` as Postgres takes it: no NUL, no lone surrogates."""
    return text.encode("utf-8", _ERRORS).decode("utf-8").replace("\0", "␀")


class OutputBuffer:
    """The first and the last half of `limit_bytes`, and a count of all bytes; it never grows beyond that."""

    def __init__(self, limit_bytes: int) -> None:
        self._head_limit = limit_bytes // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def append(self, data: bytes) -> None:
        """Take what was printed next."""
        self.total_bytes += len(data)
        free = self._head_limit - len(self._head)
        self._head += data[:free]
        self._tail += data[free:]
        del self._tail[: max(len(self._tail) - self._tail_limit, 0)]

    def render(self) -> Output:
        """What was printed so far as text; a line in the middle says how many bytes are missing there."""
        if self.total_bytes == len(self._head) + len(self._tail):
            return Output(_text_of(bytes(self._head + self._tail)), self.total_bytes)
        head, tail = _without_cut_end(self._head), _without_cut_start(self._tail)
        left_out = self.total_bytes - len(head) - len(tail)
        marker = f"\n… {left_out:,} bytes left out …\n"
        return Output(_text_of(head) + marker + _text_of(tail), self.total_bytes, truncated=True)


def _text_of(data: bytes) -> str:
    return data.decode("utf-8", _ERRORS).replace("\0", "␀")


def _without_cut_end(data: bytearray) -> bytes:
    """Without the first bytes of a character whose others are missing."""
    decoder = codecs.getincrementaldecoder("utf-8")(_ERRORS)
    decoder.decode(bytes(data))
    pending, _ = decoder.getstate()
    return bytes(data[: len(data) - len(pending)])


def _without_cut_start(data: bytearray) -> bytes:
    """Without the last bytes, three at most, of a character whose first is missing."""
    start = 0
    while start < min(3, len(data)) and data[start] in _CONTINUATION:
        start += 1
    return bytes(data[start:])
