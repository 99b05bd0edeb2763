"""Time-zone names, where their rules come from, and whether all changes of the clocks are found."""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import resources
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import DstGap, DstRepeat
from pgcron_runner.schedule import check_timezone, zone_data_version, zone_note, zones
from pgcron_runner.schedule.timeline import Change, Timeline, changes

NAMES = resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()
HOUR = 3600


def seconds(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


# -- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "Europe/Berlin",
        "America/Argentina/Buenos_Aires",
        "UTC",
        "Etc/UTC",
        "Etc/GMT+5",
        "Etc/GMT-14",
        "US/Eastern",
        "Asia/Calcutta",
        "Europe/Kyiv",
        "Europe/Kiev",
        "Antarctica/Troll",
        "Japan",
    ],
)
def test_accepted(name: str) -> None:
    assert check_timezone(name).key == name


@pytest.mark.parametrize(
    ("name", "proposal"),
    [
        ("europe/berlin", "Europe/Berlin"),
        ("EUROPE/BERLIN", "Europe/Berlin"),
        ("utc", "UTC"),
        ("Utc", "UTC"),
        ("us/eastern", "US/Eastern"),
        ("EST", "America/New_York"),
        ("EDT", "America/New_York"),
        ("CST", "America/Chicago, Asia/Shanghai"),
        ("IST", "Asia/Kolkata, Europe/Dublin or Asia/Jerusalem"),
        ("PST", "America/Los_Angeles"),
        ("MST", "America/Phoenix"),
        ("HST", "Pacific/Honolulu"),
        ("CET", "Europe/Berlin"),
        ("BST", "Europe/London"),
        ("GMT", "UTC"),
        ("EST5EDT", "America/New_York"),
        ("PST8PDT", "America/Los_Angeles"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", "Europe/Berlin, America/New_York or UTC"),
        ("EST5EDT4", "Europe/Berlin, America/New_York or UTC"),
        ("GMT+5", "the name of a place, such as Europe/Berlin, or Etc/GMT-5 for UTC+5"),
        ("UTC+2", "the name of a place, such as Europe/Berlin, or Etc/GMT-2 for UTC+2"),
        ("UTC-08:00", "the name of a place, such as Europe/Berlin, or Etc/GMT+8 for UTC-8"),
        ("+05:30", "Europe/Berlin, America/New_York or UTC"),
        ("+02", "the name of a place, such as Europe/Berlin, or Etc/GMT-2 for UTC+2"),
        ("GMT0", "UTC"),
        ("GMT+0", "UTC"),
        ("FOO5", "Europe/Berlin, America/New_York or UTC"),
        ("posix/Europe/Berlin", "Europe/Berlin"),
        ("right/Europe/Berlin", "Europe/Berlin"),
        ("right/UTC", "UTC"),
        ("localtime", "Europe/Berlin, America/New_York or UTC"),
        ("posixrules", "Europe/Berlin, America/New_York or UTC"),
        ("Factory", "Europe/Berlin, America/New_York or UTC"),
        ("", "Europe/Berlin, America/New_York or UTC"),
        (" ", "Europe/Berlin, America/New_York or UTC"),
        ("../../etc/passwd", "Europe/Berlin, America/New_York or UTC"),
        ("/etc/localtime", "Europe/Berlin, America/New_York or UTC"),
        ("Europe/../Europe/Berlin", "Europe/Berlin"),
        ("Europe/", "Europe/Berlin, America/New_York or UTC"),
        ("Europe", "Europe/Berlin, America/New_York or UTC"),
        ("zones", "Europe/Berlin, America/New_York or UTC"),
        ("__init__.py", "Europe/Berlin, America/New_York or UTC"),
        (" Europe/Berlin", "Europe/Berlin"),
        ("Europe/Berlin\n", "Europe/Berlin"),
        ("Europe/Berln", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("America/New York", "America/New_York"),
        ("Europe/B\u00e9rlin", "Europe/Berlin"),
        ("Mars/Olympus", "Europe/Berlin, America/New_York or UTC"),
        ("x" * 100_000, "Europe/Berlin, America/New_York or UTC"),
    ],
)
def test_refused_with_a_proposal(name: str, proposal: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_timezone(name)
    assert refusal.value.field == "timezone"
    assert str(refusal.value.example).startswith(proposal)
    assert len(str(refusal.value)) < 400


def refusal_of(name: str) -> InvalidInput | None:
    try:
        assert check_timezone(name).key == name
    except InvalidInput as refusal:
        return refusal
    return None


def test_every_name_of_the_data_is_accepted_or_refused_for_a_reason() -> None:
    refused = {name: refusal for name in NAMES if (refusal := refusal_of(name))}
    abbreviations = "CET EET EST GMT HST MET MST PRC ROC ROK UCT WET Zulu"
    posix = "CST6CDT EST5EDT MST7MDT PST8PDT GMT+0 GMT-0 GMT0"
    assert sorted(refused) == sorted(f"{abbreviations} {posix} Factory".split())
    assert not any("is not in the time-zone data" in refusal.problem for refusal in refused.values())


def test_every_proposed_name_is_accepted() -> None:
    for proposal in zones._ABBREVIATIONS.values():
        for name in proposal.replace(", or ", ", ").replace(" or ", ", ").split(", "):
            check_timezone(name.split(" ")[0])


def test_the_inverted_sign_is_told() -> None:
    assert zone_note("Etc/GMT+5") == "Etc/GMT+5 is UTC-5, 5 h behind UTC: its sign is inverted"
    assert zone_note("Etc/GMT-14") == "Etc/GMT-14 is UTC+14, 14 h ahead of UTC: its sign is inverted"
    assert zone_note("Europe/Berlin") is None


# -- where the rules come from -----------------------------------------------------------------------------------


@pytest.fixture
def without_the_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a host where the tzdata package is missing."""
    caches = (zones._zone, zones._names, zones._lower_names)
    monkeypatch.setitem(sys.modules, "tzdata", None)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_the_package_comes_before_the_system() -> None:
    path = resources.files("tzdata").joinpath("zoneinfo", "America", "Vancouver")
    with path.open("rb") as rules:
        packaged = ZoneInfo.from_file(rules)
    for month in range(1, 13):
        at = datetime(2026, month, 15, tzinfo=UTC)
        assert at.astimezone(check_timezone("America/Vancouver")).utcoffset() == at.astimezone(packaged).utcoffset()
    assert zone_data_version()[:2] == "20"


@pytest.mark.usefixtures("without_the_package")
def test_without_the_package_the_system_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "Europe"
    folder.mkdir()
    (folder / "Berlin").write_bytes(_zone_file([], [3600]))
    (tmp_path / "tzdata.zi").write_text("# version 2021a\nR d 1916 o - Jun 14 23s 1 S\n", encoding="utf-8")
    monkeypatch.setattr("zoneinfo.TZPATH", (str(tmp_path),))
    monkeypatch.setattr("zoneinfo.available_timezones", lambda: {"Europe/Berlin", "Europe/Kyiv"})
    assert zone_data_version() == "2021a"
    with pytest.raises(InvalidInput, match=r"timezone: 'Europe/Zaporozhye' is not in .* \(2021a\)"):
        check_timezone("Europe/Zaporozhye")


@pytest.mark.usefixtures("without_the_package")
def test_a_name_without_data_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoneinfo.available_timezones", lambda: {"Europe/Nowhere"})
    with pytest.raises(InvalidInput, match="timezone: 'Europe/Nowhere' has no zone data on this host"):
        check_timezone("Europe/Nowhere")


# -- changes of the clocks ---------------------------------------------------------------------------------------


def _zone_file(at: list[int], offsets: list[int]) -> bytes:
    """A zone file (RFC 8536, version 1): the first offset, then one after each of the given seconds."""
    header = b"TZif" + b"\0" * 16 + struct.pack(">6l", 0, 0, 0, len(at), len(offsets), 4)
    times = struct.pack(f">{len(at)}l", *at) + bytes(range(1, len(at) + 1))
    return header + times + b"".join(struct.pack(">lBB", offset, 0, 0) for offset in offsets) + b"XXX\0"


def _made_up_zone(at: list[int], offsets: list[int]) -> ZoneInfo:
    return ZoneInfo.from_file(io.BytesIO(_zone_file(at, offsets)), key="Test/Zone")


def _changes_in_file(content: bytes) -> list[Change]:
    """The changes of offset that a zone file lists (RFC 8536, second part, 64-bit times)."""

    def counts(start: int) -> tuple[int, ...]:
        return struct.unpack(">6l", content[start + 20 : start + 44])

    utc_count, standard_count, leaps, times, types, letters = counts(0)
    start = 44 + times * 5 + types * 6 + letters + leaps * 8 + standard_count + utc_count
    _, _, _, times, types, _ = counts(start)
    start += 44
    at = struct.unpack(f">{times}q", content[start : start + 8 * times])
    kinds = content[start + 8 * times : start + 9 * times]
    start += 9 * times
    offsets = [struct.unpack(">l", content[start + 6 * kind : start + 6 * kind + 4])[0] for kind in range(types)]
    after = [offsets[kind] for kind in kinds]
    before = [offsets[0], *after][: len(after)]
    return [Change(*change) for change in zip(at, before, after, strict=True) if change[1] != change[2]]


def test_all_changes_of_all_zones_are_found() -> None:
    seen: set[bytes] = set()
    for name in NAMES:
        content = resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
        if content in seen or "/" not in name:
            continue
        seen.add(content)
        listed = [change for change in _changes_in_file(content) if seconds(1970) < change.at]
        if listed:
            assert list(changes(check_timezone(name), seconds(1970), listed[-1].at)) == listed
            assert all(later.at - earlier.at > 5 * 86_400 for earlier, later in pairwise(listed))
    assert len(seen) > 300


@pytest.mark.parametrize(
    ("at", "repeat", "rest"),
    [
        (seconds(2027) - HOUR // 2, DstRepeat.FIRST, (seconds(2027) - HOUR // 2, seconds(2027) + HOUR // 2)),
        (seconds(2027) + HOUR // 2, DstRepeat.LAST, (seconds(2027) - HOUR // 2, seconds(2027) + HOUR // 2)),
        (seconds(2027), DstRepeat.FIRST, (seconds(2027), seconds(2027) + HOUR)),
        (seconds(2027), DstRepeat.LAST, (seconds(2027) - HOUR, seconds(2027))),
        (seconds(2027), DstRepeat.BOTH, None),
    ],
)
def test_an_hour_repeated_over_new_year_is_one(at: int, repeat: DstRepeat, rest: tuple[int, int] | None) -> None:
    timeline = Timeline(_made_up_zone([at], [HOUR, 0]), DstGap.RUN_AFTER, repeat)
    for second in range(at - 2 * HOUR, at + 2 * HOUR, HOUR // 4):
        stretch = timeline.stretch_at(second)
        assert stretch is not None
        assert stretch.start <= second < stretch.end
        assert stretch.offset == (HOUR if second < at else 0)
        assert stretch.fixed_rest == (rest is not None and rest[0] <= second < rest[1])


def test_a_gap_at_new_year_is_made_up_once() -> None:
    at = seconds(2027)
    timeline = Timeline(_made_up_zone([at], [0, HOUR]), DstGap.RUN_AFTER, DstRepeat.FIRST)
    before, after = timeline.stretch_at(at - 1), timeline.stretch_at(at)
    assert before is not None
    assert after is not None
    assert (before.end, before.made_up) == (at, None)
    assert (after.start, after.made_up) == (at, (at, at + HOUR))
