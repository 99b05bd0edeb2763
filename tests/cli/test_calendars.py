"""`pgcron-runner calendar add|days|list|remove`, and what excludes their days."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.cli.conftest import Cli
from tests.statements.builders import add_planned_job
from tests.support.databases import Database

ADD = ("--schedule", "0 3 * * *", "--timezone", "UTC", "--sql", "select 1")


def test_a_calendar_from_its_making_to_its_end(cli: Cli, database: Database) -> None:
    assert cli("calendar", "list").err == "There are no calendars. See: pgcron-runner calendar add --help\n"
    assert cli("calendar", "add", "holidays", "--description", "Bank holidays").code == 0
    assert "name: 'holidays' is taken" in cli("calendar", "add", "holidays").err
    result = cli("calendar", "days", "holidays", "--from", "2027-01-01", "--to", "2027-01-01", "--label", "New Year")
    assert result.lines == ["Added 2027-01-01, New Year, in calendar holidays."]
    assert "no job excludes it yet" in result.err
    result = cli("calendar", "days", "holidays", "--from", "2027-12-24", "--to", "2027-12-26")
    assert result.lines == ["Added 2027-12-24 to 2027-12-26 (3 days), in calendar holidays."]
    again = cli("calendar", "days", "holidays", "--from", "2027-12-24", "--to", "2027-12-26", "--label", "Christmas")
    assert again.lines[0].startswith("It has these days already:")
    assert cli("job", "add", "nightly", *ADD, "--exclude", "holidays").code == 0
    assert [cell.strip() for cell in cli("calendar", "list").lines[1].split("  ") if cell] == [
        "holidays", "4", "2027-01-01", "2027-12-26", "nightly", "Bank holidays",
    ]  # fmt: skip
    assert [line.split(maxsplit=2) for line in cli("calendar", "list", "holidays").lines[1:]] == [
        ["2027-01-01", "2027-01-01", "New Year"],
        ["2027-12-24", "2027-12-26", "Christmas"],
    ]
    [shown] = cli("calendar", "list", "--json").json
    assert shown["jobs"] == ["nightly"]
    assert shown["days"][1] == {"from": "2027-12-24", "to": "2027-12-26", "label": "Christmas"}
    refused = cli("calendar", "remove", "holidays")
    assert (refused.code, refused.err) == (
        1,
        "Error: 1 job excludes calendar holidays: nightly. First: pgcron-runner job edit JOB --clear exclude\n",
    )
    assert cli("job", "edit", "nightly", "--clear", "exclude").code == 0
    assert cli("calendar", "remove", "holidays").out == "Removed calendar holidays.\n"
    assert database.value("select count(*) from pgcron.calendar_days") == 0


def test_what_is_wrong_is_told(cli: Cli) -> None:
    assert "name: 'two words'" in cli("calendar", "add", "two words").err
    assert (
        "There is no calendar named 'x'"
        in cli("calendar", "days", "x", "--from", "2027-01-01", "--to", "2027-01-01").err
    )
    assert "There is no calendar named 'x'" in cli("calendar", "list", "x").err
    assert "There is no calendar named 'x'" in cli("calendar", "remove", "x").err
    assert (
        "to: '2027-01-01' is before 2027-01-02"
        in cli("calendar", "days", "x", "--from", "2027-01-02", "--to", "2027-01-01").err
    )
    assert (
        "names a day that does not exist"
        in cli("calendar", "days", "x", "--from", "2027-02-30", "--to", "2027-03-01").err
    )
    unknown = cli("job", "add", "nightly", *ADD, "--exclude", "x")
    assert (unknown.code, "there is no calendar 'x'" in unknown.err) == (2, True)


def test_job_next_marks_what_will_be_skipped(cli: Cli, database: Database) -> None:
    database.execute("insert into pgcron.calendars values ('holidays')")
    database.execute("insert into pgcron.calendar_days values ('holidays', '2100-01-01', '2100-01-01', 'New Year')")
    when: dict[str, Any] = {
        "next_run_at": datetime(2099, 12, 31, 3, tzinfo=UTC),
        "schedule": "0 3 * * *",
        "exclude": ["holidays"],
    }
    add_planned_job(database, "nightly", **when)
    lines = cli("job", "next", "nightly", "--count", "3").lines
    assert lines[0].split() == ["UTC", "WHEN", "SKIPPED"]
    assert [line.endswith("skipped: calendar holidays: New Year") for line in lines[1:]] == [False, True, False]
    assert [slot["skipped"] for slot in cli("job", "next", "nightly", "--count", "2", "--json").json] == [
        None,
        "skipped: calendar holidays: New Year",
    ]
    assert "skipped: calendar holidays: New Year" in cli("job", "show", "nightly").out
