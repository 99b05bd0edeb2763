"""`pgcron-runner backfill`: times that have passed, each once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Cli
from tests.statements.builders import add_final, add_job, add_run
from tests.support.databases import Database

JANUARY = ("--from", "2026-01-01", "--to", "2026-02-01")
FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)  # 03:00 in Berlin
DAY = timedelta(days=1)


@pytest.fixture
def job_id(database: Database) -> int:
    return add_job(database, "nightly", schedule="0 3 * * *", timezone="Europe/Berlin")


def made(database: Database) -> list[tuple[datetime, str, int | None]]:
    return database.rows(
        "select scheduled_for, trigger, max_running from pgcron.runs where backfill order by scheduled_for"
    )


def test_the_range_is_half_open_and_in_the_zone_of_the_job(cli: Cli, database: Database, job_id: int) -> None:
    result = cli("backfill", "nightly", "--from", "2026-01-01T03:00", "--to", "2026-01-04T03:00", "--yes")
    assert result.lines == [
        "Queued 3 runs of job nightly, 2026-01-01 03:00:00 +01:00 to 2026-01-03 03:00:00 +01:00.",
        "See: pgcron-runner runs list nightly",
    ]
    assert made(database) == [(FIRST + n * DAY, "backfill", 1) for n in range(3)]


def test_a_second_call_makes_none_and_says_so(cli: Cli, database: Database, job_id: int) -> None:
    cli("backfill", "nightly", *JANUARY, "--yes")
    result = cli("backfill", "nightly", *JANUARY, "--yes")
    assert (result.code, result.lines) == (
        0,
        ["Nothing was queued: every time is accounted for.", "Left alone: 31 queued or running."],
    )
    database.execute("update pgcron.runs set status = 'cancelled', finished_at = now()")
    assert cli("backfill", "nightly", *JANUARY, "--yes").lines[1] == "Left alone: 31 made by an earlier backfill."
    assert len(made(database)) == 31


def test_a_dry_run_tells_what_there_is_already_and_makes_nothing(cli: Cli, database: Database, job_id: int) -> None:
    add_final(database, job_id, "succeeded", scheduled_for=FIRST)
    add_final(database, job_id, "failed", scheduled_for=FIRST + DAY)
    add_run(database, job_id, scheduled_for=FIRST + 2 * DAY)
    result = cli("backfill", "nightly", *JANUARY, "--dry-run")
    assert [" ".join(line.split()) for line in result.lines] == [
        "To be made 29 runs",
        "First 2026-01-02 03:00:00 +01:00",
        "Last 2026-01-31 03:00:00 +01:00",
        "Succeeded 2026-01-01 03:00:00 +01:00",
        "Left alone 1 succeeded already, 1 queued or running",
    ]
    shown = cli("backfill", "nightly", *JANUARY, "--dry-run", "--json").json
    assert (shown["to_be_made"], shown["made"], shown["succeeded"], shown["live"]) == (
        *(29, 0, ["2026-01-01T02:00:00Z"]),
        1,
    )
    assert shown["first"] == "2026-01-02T02:00:00Z"
    assert made(database) == []


def test_side_by_side_as_far_as_the_job_allows(cli: Cli, database: Database) -> None:
    add_job(database, "many", schedule="0 3 * * *", overlap="allow", max_running=4)
    assert cli("backfill", "many", *JANUARY, "--overlap", "allow", "--yes").code == 0
    assert {row[2] for row in made(database)} == {4}


def test_excluded_days_and_bounds_are_left_out(cli: Cli, database: Database) -> None:
    database.execute("insert into pgcron.calendars values ('holidays')")
    database.execute("insert into pgcron.calendar_days values ('holidays', '2026-01-06', '2026-01-07', 'Epiphany')")
    bounds = {"starts_at": datetime(2026, 1, 5, 3, tzinfo=UTC), "ends_at": datetime(2026, 1, 8, 3, tzinfo=UTC)}
    add_job(database, "some", schedule="0 3 * * *", exclude=["holidays"], **bounds)
    result = cli("backfill", "some", *JANUARY, "--yes")
    assert result.lines[1] == "Left alone: 2 on excluded days."
    assert [at.day for at, *_ in made(database)] == [5, 8]


def test_ten_thousand_are_made_at_a_call_and_no_more(cli: Cli, database: Database) -> None:
    add_job(database, "minutely", schedule="* * * * *")
    result = cli("backfill", "minutely", *JANUARY, "--yes")
    assert result.code == 2
    assert "takes in 44,640 times of this job, and one call makes at most 10,000" in result.err
    up_to = result.err.split("--to ")[1].strip()
    assert up_to == "2026-01-07T22:40:00Z"
    assert cli("backfill", "minutely", "--from", "2026-01-01", "--to", up_to, "--yes", "--json").json["made"] == 10_000


@pytest.mark.parametrize(
    ("schedule", "arguments", "code", "sentence"),
    [
        ("@manual", JANUARY, 2, "is manual: it has no times that could be filled in"),
        ("@every 5m after finish", JANUARY, 2, "counts from the end of its last run"),
        ("@daily", ("--from", "2026-01-01", "--to", "2100-01-01"), 2, "to: '2100-01-01' is in the future"),
        ("@daily", ("--from", "2026-01-02", "--to", "2026-01-02"), 2, "is not after --from"),
        ("@daily", ("--from", "soon", "--to", "2026-01-02"), 2, "from: 'soon' is not a date and time"),
        ("@daily", (*JANUARY, "--overlap", "skip"), 2, "overlap: 'skip' means nothing here"),
        ("@daily", JANUARY, 1, "Nobody is there to be asked. Say --yes"),
    ],
)
def test_refusals(
    schedule: str, arguments: tuple[str, ...], code: int, sentence: str, cli: Cli, database: Database
) -> None:
    add_job(database, schedule=schedule)
    result = cli("backfill", "job", *arguments)
    assert (result.code, result.out) == (code, "")
    assert sentence in result.err
    assert database.value("select count(*) from pgcron.runs") == 0


def test_nothing_in_the_range(cli: Cli, job_id: int) -> None:
    result = cli("backfill", "nightly", "--from", "2026-01-01T04:00", "--to", "2026-01-01T05:00")
    assert result.lines == ["Nothing was queued: the job has no time in this range."]
