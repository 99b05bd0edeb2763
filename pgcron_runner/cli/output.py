"""How things look: tables, facts, JSON and times, on a terminal and in a pipe. The home of rich.

What users wrote goes through `clean` on its way to a terminal, and never through rich's markup.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import typer

from pgcron_runner.cli.wording import clean as clean
from pgcron_runner.cli.wording import in_progress as in_progress
from pgcron_runner.cli.wording import instant as instant
from pgcron_runner.cli.wording import local as local
from pgcron_runner.cli.wording import plural as plural
from pgcron_runner.cli.wording import relative as relative
from pgcron_runner.cli.wording import size as size
from pgcron_runner.cli.wording import span as span
from pgcron_runner.cli.wording import utc as utc
from pgcron_runner.cli.wording import zone_of as zone_of
from pgcron_runner.model import Status

_GAP: Final = "  "
# An optional column is worth more than the rest of a longer text, but never a column of less than the least.
_COMFORTABLE, _LEAST = 24, 8
# In a pipe nothing is cut or wrapped.
_ENDLESS: Final = 100_000

_TRAILING: Final = re.compile(r"(?: |\x1b\[[0-9;]*m)+$")

_STYLES: Final = {
    Status.SUCCEEDED: "green",
    Status.RUNNING: "cyan",
    Status.FAILED: "red",
    Status.TIMED_OUT: "red",
    Status.LOST: "red",
    Status.SKIPPED: "yellow",
    Status.MISSED: "yellow",
    Status.CANCELLED: "yellow",
    Status.INTERRUPTED: "yellow",
    "alive": "green",
    "silent": "red",
    "stopping": "yellow",
    "problem": "red",
    "disabled": "yellow",
    "paused": "yellow",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Where there is too little room, `flexible` ones are cut, after `optional` ones are left out.

    Of the optional ones the highest number goes first; 0 stays.
    """

    title: str
    flexible: bool = False
    right: bool = False
    optional: int = 0


@dataclass(frozen=True, slots=True)
class Styled:
    """A text with one of rich's styles."""

    text: str
    style: str


Cell = str | Styled


def say(text: str = "") -> None:
    """A line of what was asked for."""
    typer.echo(text)


def note(text: str) -> None:
    """A line beside what was asked for: to standard error, so that it is in nobody's pipe."""
    typer.echo(text, err=True)


def print_done(text: str, facts: Any, *, as_json: bool, quiet: bool) -> None:
    """What a command has done: as JSON, in words, or, where nobody wants to hear of it, not at all."""
    if as_json:
        print_json(facts)
    elif not quiet:
        say(text)


def print_names(names: Iterable[object]) -> None:
    """One a line, for other programs."""
    for name in names:
        say(clean(str(name)))


def status_cell(status: str | None) -> Cell:
    """A state in its colour."""
    return Styled(status, style_of(status)) if status else "-"


def style_of(status: str) -> str:
    """The colour of a state."""
    return _STYLES.get(status, "")


def print_marks(marks: Iterable[Styled]) -> None:
    """Letters side by side, each in its colour, on as many lines as they need."""
    from rich.text import Text

    _print(Text.assemble(*((mark.text, mark.style) for mark in marks), overflow="fold"), _console())


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
    """A table without lines. On a terminal it fits the width; in a pipe all columns are there and all cells whole."""
    lines, natural = _measured(columns, rows)
    if not sys.stdout.isatty():
        for line in lines:
            padded = (_padded(cell.text, natural[n], columns[n].right) for n, cell in enumerate(line))
            typer.echo(_GAP.join(padded).rstrip())
        return
    from rich.text import Text

    console = _console()
    _print(Text("\n").join(_table_lines(columns, lines, natural, console.width)), console)


def table_lines(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], room: int) -> list[Any]:
    """The same as lines of rich's, for a screen of that width; the first has the titles."""
    lines, natural = _measured(columns, rows)
    return _table_lines(columns, lines, natural, room)


def _measured(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> tuple[list[list[Styled]], list[int]]:
    """Titles and rows, and how wide each column would like to be."""
    lines = [[Styled(column.title, "bold") for column in columns], *([_cleaned(cell) for cell in row] for row in rows)]
    return lines, [
        max(map(_width, texts)) for texts in zip(*([cell.text for cell in line] for line in lines), strict=True)
    ]


def _table_lines(
    columns: Sequence[Column], lines: Sequence[Sequence[Styled]], natural: Sequence[int], room: int
) -> list[Any]:
    widths = _fit(columns, natural, room)
    return [_line([line[n] for n in widths], columns, widths) for line in lines]


def _line(cells: Sequence[Styled], columns: Sequence[Column], widths: Mapping[int, int]) -> Any:
    """One line for a terminal, coloured and cut."""
    from rich.text import Text

    texts = []
    for cell, (n, width) in zip(cells, widths.items(), strict=True):
        text = Text(cell.text, cell.style)
        text.truncate(width, overflow="ellipsis")
        text.align("right" if columns[n].right else "left", width)
        texts.append(text)
    return Text(_GAP).join(texts)


def _cleaned(cell: Cell) -> Styled:
    return Styled(clean(cell.text), cell.style) if isinstance(cell, Styled) else Styled(clean(cell), "")


def _width(text: str) -> int:
    """How many columns of a terminal a text takes: letters may be two wide, or none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks


def _fit(columns: Sequence[Column], natural: Sequence[int], room: int) -> dict[int, int]:
    """Which columns are shown, and how wide: optional ones are left out, then flexible ones are cut, until all fit."""
    comfortable = {n: min(width, _COMFORTABLE) if columns[n].flexible else width for n, width in enumerate(natural)}
    shown = dict(comfortable)
    by_worth = sorted((n for n in shown if columns[n].optional), key=lambda n: columns[n].optional)
    for n in reversed(by_worth):
        if _total(shown) > room:
            del shown[n]
    # A narrow one may find room that a wider one has left.
    for n in by_worth:
        if n not in shown and _total(shown | {n: comfortable[n]}) <= room:
            shown[n] = comfortable[n]
    widths = {n: natural[n] for n in sorted(shown)}
    flexible = [n for n in widths if columns[n].flexible]
    while (excess := _total(widths) - room) > 0 and flexible:
        longest = max(flexible, key=lambda n: widths[n])
        second = max([_LEAST, *(widths[n] for n in flexible if widths[n] < widths[longest])])
        share = -(-excess // sum(widths[n] == widths[longest] for n in flexible))
        if widths[longest] <= _LEAST:
            break
        widths[longest] -= max(min(share, widths[longest] - second), 1)
    return widths


def _total(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def print_facts(facts: Iterable[tuple[Cell, ...]]) -> None:
    """Names and values, one below the other; a long last one goes on under itself."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    rows = list(facts)
    for n in range(1, max(map(len, rows), default=2)):
        table.add_column(overflow="fold", no_wrap=n < len(rows[0]) - 1)
    for name, *values in rows:
        table.add_row(_text(name), *(_text(value, lines=True) for value in values))
    _print(table, _console())


def print_text(text: str) -> None:
    """A sentence, which on a terminal is broken between words."""
    _print(_text(text), _console())


def print_heading(text: str) -> None:
    """The title of what follows."""
    console = _console()
    _print(_text(Styled(text, "bold")), console)


def print_json(value: Any) -> None:
    """Plain JSON, indented; ASCII, so that no terminal can be made to obey what is in it."""
    typer.echo(json.dumps(to_json(value), indent=2, allow_nan=False))


def to_json(value: Any) -> Any:
    """Values as JSON has them: instants in UTC with a Z, durations in seconds, dataclasses as objects."""
    match value:
        case datetime():
            return instant(value)
        case timedelta():
            seconds = value.total_seconds()
            return int(seconds) if seconds.is_integer() else seconds
        case UUID():
            return str(value)
        case dict():
            return {key: to_json(item) for key, item in value.items()}
        case list() | tuple():
            return [to_json(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            return value


def _console() -> Any:
    from rich.console import Console

    # sys.stdout may be a test's or a pager's by now, so it is asked each time.
    terminal = sys.stdout.isatty()
    return Console(
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=not terminal,
        width=None if terminal else _ENDLESS,
        force_terminal=None if terminal else False,
    )


def _print(what: Any, console: Any) -> None:
    with console.capture() as captured:
        console.print(what)
    # rich fills lines up with blanks, before the codes that end a colour too; whoever copies them would notice.
    lines = (_TRAILING.sub(lambda end: end[0].replace(" ", ""), line) for line in captured.get().splitlines())
    typer.echo("\n".join(lines), color=True)


def _text(cell: Cell, *, lines: bool = False) -> Any:
    from rich.text import Text

    text, style = (cell.text, cell.style) if isinstance(cell, Styled) else (cell, "")
    return Text(clean(text, lines=lines), style)
