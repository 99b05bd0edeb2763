"""TOML: reading it, and finding the line of a key.

The standard library reads 10,000 jobs in half a second. Parsers that know lines take ten times as long, and lines are
wanted only where something is wrong.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

_AT: Final = re.compile(r" ?\(at (?:line (?P<line>\d+), column \d+|end of document)\)$")
_HEADER: Final = re.compile(r"\s*\[(?P<path>[^\[\]]+)\]\s*(?:#.*)?$")
_KEY: Final = re.compile(r"""\s*(?P<path>(?:[A-Za-z0-9_.\s-]|"(?:[^"\\]|\\.)*"|'[^']*')+?)\s*=""")
_LONG: Final = ('"""', "'''")


class SyntaxFault(Exception):
    """The text is not TOML. `line` 0: its end."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        self.message = message
        super().__init__(message)


def parse(text: str) -> dict[str, Any]:
    """The tables of a file. Raises SyntaxFault."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT.search(str(error))
        line = int(found["line"]) if found and found["line"] else text.count("\n") + 1
        message = _AT.sub("", str(error))
        raise SyntaxFault(line, f"is not TOML: {message}: {_line(text, line)}") from None
    except RecursionError:
        raise SyntaxFault(0, "is nested too deeply") from None


def line_of(text: str, keys: tuple[str, ...]) -> int:
    """The line on which a key stands, or the nearest table around it; 0: there is none. Only for what is wrong."""
    best = line_of_best = 0
    table: tuple[str, ...] = ()
    within: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if within is not None:
            within = None if within in line else within
            continue
        path: tuple[str, ...] = ()
        if header := _HEADER.match(line):
            path = table = _path(f"[{header['path']}]")
        elif key := _KEY.match(line):
            path = (*table, *_path(f"{key['path']} = 0"))
            within = _left_open(line[key.end() :])
        common = _common(path, keys)
        if common > best:
            best, line_of_best = common, number
    return line_of_best


def _path(text: str) -> tuple[str, ...]:
    """The keys of a header, or of a line."""
    try:
        value: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return ()
    path: list[str] = []
    while isinstance(value, dict) and value:
        [(key, value)] = value.items()
        path.append(key)
    return tuple(path)


def _common(path: tuple[str, ...], keys: tuple[str, ...]) -> int:
    """How many keys of `keys` this place is about; 0 where it is about something else."""
    length = min(len(path), len(keys))
    return length if path[:length] == keys[:length] else 0


def _left_open(value: str) -> str | None:
    """The quotes of a text that goes on on the next lines."""
    for quotes in _LONG:
        if value.lstrip().startswith(quotes) and value.count(quotes) == 1:
            return quotes
    return None


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return repr(lines[number - 1].strip()[:80]) if 0 < number <= len(lines) else "the end of the file"
