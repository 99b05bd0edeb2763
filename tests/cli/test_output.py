"""How texts, times and tables come out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from pgcron_runner.cli import output
from pgcron_runner.cli.output import Column, Styled

NOW = datetime(2026, 3, 1, 18, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [red]text[/red] é ✓", "plain [red]text[/red] é ✓"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b31m", r"\x9b31m"),
        ("a\x00b\x07", r"a\x00b\x07"),
        ("evil\u202egpj", r"evil\u202egpj"),
        ("two\nlines\tand  more", "two lines and more"),
        ("over\rwritten", "over written"),
        ("a\u2028b", r"a b"),
    ],
)
def test_no_text_can_command_a_terminal(text: str, shown: str) -> None:
    assert output.clean(text) == shown


def test_lines_may_stay_lines() -> None:
    assert output.clean("a\tb\r\nc\rd\x1be\n", lines=True) == "a\tb\nc\nd\\x1be\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.0404, "40ms"),
        (1, "1s"),
        (12.54, "12.5s"),
        (59.99, "1m"),
        (60, "1m"),
        (61, "1m 1s"),
        (3600, "1h"),
        (3605, "1h"),
        (11_520, "3h 12m"),
        (86_400 * 400 + 3600, "400d 1h"),
        (-5, "0ms"),
    ],
)
def test_spans_have_their_two_largest_units(seconds: float, text: str) -> None:
    assert output.span(timedelta(seconds=seconds)) == text


def test_distances_have_a_direction() -> None:
    assert output.relative(NOW + timedelta(hours=3, minutes=12), NOW) == "in 3h 12m"
    assert output.relative(NOW - timedelta(seconds=3.4), NOW) == "3s ago"
    assert output.relative(NOW + timedelta(milliseconds=400), NOW) == "now"


def test_times_are_shown_with_their_offset() -> None:
    assert output.local(NOW, ZoneInfo("Asia/Kolkata")) == "2026-03-01 23:30:00 +05:30"
    assert output.utc(NOW.astimezone(ZoneInfo("Asia/Kolkata"))) == "2026-03-01 18:00:00Z"


def test_an_offset_with_seconds_is_shown_whole() -> None:
    assert output.local(datetime(1800, 1, 1, tzinfo=UTC), ZoneInfo("Europe/Berlin")).endswith("+00:53:28")


def test_a_zone_that_this_host_does_not_know_is_utc() -> None:
    assert output.zone_of("Mars/Olympus").key == output.zone_of(None).key == "UTC"


@dataclass(frozen=True)
class _Value:
    at: datetime
    after: timedelta
    half: timedelta
    id: UUID
    more: tuple[dict[str, object], ...]


def test_json_has_instants_in_utc_and_durations_in_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2026, 3, 1, 19, 0, 0, 250, tzinfo=timezone(timedelta(hours=1)))
    output.print_json([_Value(at, timedelta(minutes=2), timedelta(seconds=0.5), UUID(int=1), ({"a": None},))])
    text = capsys.readouterr().out
    assert json.loads(text) == [
        {
            "at": "2026-03-01T18:00:00.000250Z",
            "after": 120,
            "half": 0.5,
            "id": "00000000-0000-0000-0000-000000000001",
            "more": [{"a": None}],
        }
    ]


def test_json_is_ascii_and_carries_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"name": "[red]\x1b[31m\x9bé\u202e"})
    text = capsys.readouterr().out
    assert text.isascii()
    assert "\x1b" not in text
    assert json.loads(text)["name"] == "[red]\x1b[31m\x9bé\u202e"


def test_a_pipe_gets_every_cell_whole_and_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (Column("NAME", flexible=True), Column("N", right=True), Column("MORE", optional=1))
    output.print_table(columns, [("x" * 300, "7", ""), (Styled("[b]a\nb[/b]", "red"), "123", "日本")])
    titles, first, second = capsys.readouterr().out.splitlines()
    assert titles.split() == ["NAME", "N", "MORE"]
    assert first == f"{'x' * 300}    7"
    assert second == f"{'[b]a b[/b]':300}  123  日本"


_WIDTHS = (Column("NAME", flexible=True), Column("STATE"), Column("TEXT", flexible=True), Column("MORE", optional=1))


@pytest.mark.parametrize(
    ("natural", "room", "widths"),
    [
        ((10, 5, 10, 10), 80, {0: 10, 1: 5, 2: 10, 3: 10}),
        ((10, 5, 10, 10), 40, {0: 10, 1: 5, 2: 10}),
        ((60, 5, 10, 10), 80, {0: 49, 1: 5, 2: 10, 3: 10}),
        ((60, 5, 60, 10), 49, {0: 20, 1: 5, 2: 20}),
        ((60, 5, 12, 10), 40, {0: 19, 1: 5, 2: 12}),
        ((60, 5, 60, 10), 10, {0: 8, 1: 5, 2: 8}),
    ],
)
def test_what_is_optional_goes_and_what_is_long_is_cut_until_all_fits(
    natural: tuple[int, ...], room: int, widths: dict[int, int]
) -> None:
    assert output._fit(_WIDTHS, natural, room) == widths
