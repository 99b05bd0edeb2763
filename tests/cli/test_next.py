"""`pgcron-runner next`: instants for machines, local times for people, and no database."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Cli

BERLIN = ("--timezone", "Europe/Berlin")


def test_json_is_one_array_of_utc_instants(offline: Cli) -> None:
    result = offline("next", "0 19 * * *", *BERLIN, "--from", "2026-03-01T12:00", "--count", "2", "--json")
    assert (result.code, result.err) == (0, "")
    assert result.json == ["2026-03-01T18:00:00Z", "2026-03-02T18:00:00Z"]


def test_people_see_local_time_with_its_offset_utc_and_how_far_away_it_is(offline: Cli) -> None:
    result = offline("next", "0 19 * * *", *BERLIN, "--from", "2100-03-01T12:00Z", "--count", "1")
    words, titles, line = result.lines
    assert words == "At 19:00."
    assert titles.split() == ["Europe/Berlin", "UTC", "WHEN"]
    assert line.startswith("Mon 2100-03-01 19:00:00 +01:00  2100-03-01 18:00:00Z  in ")


def test_without_from_it_counts_from_now(offline: Cli) -> None:
    [first, second] = offline("next", "@every 1h", "--timezone", "UTC", "--count", "2", "--json").json
    now = datetime.now(UTC)
    assert timedelta(0) <= datetime.fromisoformat(first) - now <= timedelta(hours=1)
    assert datetime.fromisoformat(second) - datetime.fromisoformat(first) == timedelta(hours=1)


def test_a_slot_in_the_gap_is_marked_as_moved_and_its_neighbour_is_not(offline: Cli) -> None:
    moved = offline("next", "30 2 * * *", *BERLIN, "--from", "2027-03-27T12:00", "--count", "2").lines[1:]
    assert "2027-03-28 03:00:00 +02:00" in moved[1]
    assert "moved: the clock skips its time" in moved[1]
    assert "moved" not in moved[2]
    regular = offline("next", "0 3 * * *", *BERLIN, "--from", "2027-03-27T12:00", "--count", "1")
    assert "2027-03-28 03:00:00 +02:00" in regular.out
    assert "moved" not in regular.out


def test_a_slot_that_the_clock_shows_twice_says_which_pass_it_is(offline: Cli) -> None:
    both = ("next", "30 2 * * *", *BERLIN, "--from", "2027-10-30T12:00", "--count", "2", "--dst-repeat", "both")
    _, _, first, second = offline(*both).lines
    assert "02:30:00 +02:00" in first
    assert first.endswith("first pass of a time shown twice")
    assert "02:30:00 +01:00" in second
    assert second.endswith("second pass of a time shown twice")


def test_a_gap_can_be_skipped(offline: Cli) -> None:
    skipped = ("next", "30 2 * * *", *BERLIN, "--from", "2027-03-27T12:00", "--dst-gap", "skip", "--count", "1")
    assert offline(*skipped, "--json").json == ["2027-03-29T00:30:00Z"]


def test_an_at_in_the_gap_is_moved_too(offline: Cli) -> None:
    result = offline("next", "@at 2027-03-28T02:30", *BERLIN, "--from", "2027-03-27T12:00")
    assert "moved: the clock skips its time" in result.lines[1]
    assert result.err == "Note: it is never due after that.\n"


def test_utc_is_shown_once(offline: Cli) -> None:
    result = offline("next", "@daily", "--timezone", "UTC", "--from", "2027-01-01T00:00Z", "--count", "1")
    assert result.lines[1].split() == ["UTC", "WHEN"]
    assert result.lines[2].startswith("Sat 2027-01-02 00:00:00Z  in ")


def test_the_zone_may_come_from_the_environment_and_the_flag_wins(
    offline: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCRON_TIMEZONE", "Asia/Tokyo")
    tokyo = ("next", "@daily", "--from", "2027-01-01T12:00Z", "--count", "1", "--json")
    assert offline(*tokyo).json == ["2027-01-01T15:00:00Z"]
    assert offline(*tokyo, "--timezone", "UTC").json == ["2027-01-02T00:00:00Z"]


@pytest.mark.parametrize(
    ("schedule", "note"),
    [
        ("@manual", "a manual job is due only when somebody runs it"),
        ("@every 10m after finish", "due 10m after the end of each run, so there is nothing to list"),
        ("@at 2020-01-01T00:00", "it is never due again"),
    ],
)
def test_what_has_no_times_says_why(schedule: str, note: str, offline: Cli) -> None:
    result = offline("next", schedule, "--timezone", "UTC")
    assert (result.code, result.out, result.err) == (0, "", f"Note: {note}.\n")
    assert offline("next", schedule, "--timezone", "UTC", "--json").json == []


def test_h_needs_the_name_of_the_job(offline: Cli) -> None:
    result = offline("next", "H 3 * * *", "--timezone", "UTC")
    assert result.code == 2
    assert "--name nightly-report" in result.err
    named = ("next", "H 3 * * *", "--timezone", "UTC", "--count", "1", "--json", "--name")
    assert offline(*named, "a").json != offline(*named, "b").json


def test_a_zone_with_an_inverted_sign_is_explained(offline: Cli) -> None:
    result = offline("next", "@daily", "--timezone", "Etc/GMT+5", "--count", "1")
    assert "Note: Etc/GMT+5 is UTC-5, 5 h behind UTC: its sign is inverted.\n" in result.err


# What takes longer to load than a short command takes to run; croniter only where a field has a range or a step.
_HEAVY = {"psycopg", "tenacity", "structlog", "rich", "pydantic", "apprise", "croniter", "asyncio"}


def loaded_by(*arguments: str) -> set[str]:
    """The modules of a command line that has ended."""
    code = (
        "import sys; from pgcron_runner.cli.app import run\n"
        "code = run(sys.argv[1:]); print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_next_loads_nothing_heavy_and_no_other_command() -> None:
    loaded = loaded_by("next", "0 9 * * 1", *BERLIN)
    assert loaded & _HEAVY == set()
    own = {name.removeprefix("pgcron_runner.cli.") for name in loaded if name.startswith("pgcron_runner.cli.")}
    for_all = {"app", "commands", "completion", "options", "output", "step", "wording"}
    assert own - for_all == {"schedules", "upcoming"}


def test_help_loads_no_driver_and_no_checker() -> None:
    assert loaded_by("--help") & (_HEAVY - {"asyncio"}) == set()


def test_croniter_reads_ranges_and_steps() -> None:
    assert "croniter" in loaded_by("next", "*/15 * * * *", *BERLIN)
