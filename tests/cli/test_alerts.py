"""`pgcron-runner route`, `incident`, `mute` and `unmute` on real rows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.cli.conftest import Cli
from tests.duties.test_watch import fail
from tests.statements.builders import NOW, add_job, add_planned_job
from tests.statements.test_incidents import add_channel, alerts
from tests.support.databases import Database

# ------------------------------------------------------------------------------------------------- routes


def test_a_route_is_made_listed_and_taken_away(cli: Cli, database: Database) -> None:
    add_channel(database, "pager")
    for name in ("billing-daily", "billing-hourly", "other"):
        add_job(database, name, tags=["money"] if name.startswith("billing") else [])
    made = cli(
        "route", "add", "pager", "--jobs", "billing-*", "--tag", "money", "--min-failures", "3",
        "--repeat-every", "1h", "--events", "failed,lost,recovered",
    )  # fmt: skip
    assert made.lines == [
        "Route 1: pager hears of failed, lost, recovered of jobs billing-*, with tag money, "
        "from 3 failures in a row on, again every 1h."
    ]
    [listed] = cli("route", "list", "--json").json
    assert listed == {
        "id": 1, "channel": "pager", "job_pattern": "billing-*", "tags": ["money"], "queue": None, "min_failures": 3,
        "events": ["failed", "lost", "recovered"], "repeat_every": 3600.0, "jobs": 2,
    }  # fmt: skip
    header, line = cli("route", "list", "pager").lines
    assert header.split() == ["ID", "CHANNEL", "JOBS", "MATCH", "EVENTS", "FROM", "AGAIN"]
    assert line.split() == [
        "1",
        "pager",
        "billing-*",
        "#money",
        "2",
        "failed,",
        "lost,",
        "recovered",
        "3",
        "failures",
        "1h",
    ]
    removed = cli("route", "remove", "1")
    assert removed.lines == ["Removed route 1 to pager."]
    assert "it was the last: pager now hears of every job" in removed.err
    assert cli("route", "list", "--json").json == []


def test_a_route_for_no_job_says_so(cli: Cli, database: Database) -> None:
    add_channel(database)
    made = cli("route", "add", "ops", "--jobs", "nothing-*")
    assert made.code == 0
    assert "no job is such a job now" in made.err


def test_a_wrong_route_is_told_in_words(cli: Cli, database: Database) -> None:
    add_channel(database)
    refused = cli("route", "add", "ops", "--events", "failed,exploded")
    assert refused.code == 2
    assert "events: 'exploded' is none of failed, timed_out, lost" in refused.err
    assert cli("route", "add", "ops", "--repeat-every", "1").code == 2
    for arguments in (("add", "gone"), ("list", "gone"), ("remove", "7")):
        refused = cli("route", *arguments)
        assert refused.code == 1
        assert "There is no " in refused.err


# ---------------------------------------------------------------------------------------------- incidents


def test_an_incident_is_listed_shown_and_taken_on(cli: Cli, database: Database) -> None:
    add_channel(database)
    job_id = add_job(database, "backup")
    fail(database, job_id)
    database.execute("update pgcron.alerts set sent_at = now()")
    [listed] = cli("incident", "list", "--json").json
    assert (listed["job_name"], listed["event"], listed["failures"], listed["told"]) == ("backup", "failed", 1, ["ops"])
    header, line = cli("incident", "list").lines
    assert header.split()[:5] == ["ID", "JOB", "WHAT", "TIMES", "SINCE"]
    assert line.split()[:4] == ["1", "backup", "failed", "1"]
    shown = cli("incident", "show", "1").out
    assert "1 in a row" in shown
    assert "pgcron-runner runs show 1" in shown
    assert cli("incident", "ack", "1", "--by", "ann").lines == ["Incident 1 is taken on by ann."]
    assert cli("incident", "ack", "1", "--by", "bob").lines == ["Incident 1 is now taken on by bob."]
    assert [alert[1] for alert in alerts(database)] == ["failed", "acknowledged"]
    assert cli("incident", "show", "1", "--json").json["acknowledged_by"] == "bob"


def test_a_job_shows_what_is_wrong_with_it_and_why_it_was_disabled(cli: Cli, database: Database) -> None:
    job_id = add_job(database, "backup")
    for minute in range(3):
        fail(database, job_id, at=NOW + timedelta(minutes=minute))
    cli("incident", "ack", "1", "--by", "ann")
    database.execute("update pgcron.jobs set enabled = false, paused_reason = 'disabled after 3 failures in a row'")
    shown = cli("job", "show", "backup").out
    assert "Open incident 1: failed, 3 times in a row, since " in shown
    assert ", taken on by ann." in shown
    assert "disabled after 3 failures in a row" in shown
    assert cli("job", "show", "backup", "--json").json["incidents"][0]["failures"] == 3


def test_what_is_over_is_listed_only_when_asked_for(cli: Cli, database: Database) -> None:
    fail(database, add_job(database, "backup"))
    database.execute("update pgcron.incidents set closed_at = opened_at + interval '5 minutes'")
    assert cli("incident", "list").err.strip() == "Nothing is wrong now."
    assert cli("incident", "list", "--all", "--json").json[0]["id"] == 1
    assert cli("incident", "list", "--all", "--job", "other", "--json").json == []
    assert "it lasted 5m" in cli("incident", "show", "1").out
    refused = cli("incident", "ack", "1")
    assert refused.code == 1
    assert "Incident 1 is over." in refused.err
    assert "There is no incident 9." in cli("incident", "ack", "9").err


def test_catching_up_after_a_pause_alarms_nobody(cli: Cli, database: Database) -> None:
    add_channel(database)
    add_planned_job(database, "backup", next_run_at=None, schedule="0 * * * *")
    cli("job", "pause", "backup")
    database.execute("update pgcron.jobs set anchored_at = now() - interval '5 hours'")
    assert cli("job", "resume", "backup", "--catch-up", "--json").json["caught_up"]["missed"] == 4
    assert cli("incident", "list", "--all", "--json").json == []
    assert alerts(database) == []


# ------------------------------------------------------------------------------------------------- mutes


@pytest.mark.parametrize(
    ("arguments", "words", "muted"),
    [
        (["backup"], "about job backup", "select muted_until > now() from pgcron.jobs"),
        (["--channel", "ops"], "to channel ops", "select muted_until > now() from pgcron.channels"),
        (["--everything"], "about anything", "select muted_until > now() from pgcron.settings"),
    ],
)
def test_a_mute_is_set_and_lifted(arguments: list[str], words: str, muted: str, cli: Cli, database: Database) -> None:
    add_channel(database)
    add_job(database, "backup")
    assert cli("mute", *arguments, "--for", "2h").out.startswith(f"No alerts {words} before ")
    assert database.rows(muted) == [(True,)]
    assert cli("unmute", *arguments).lines == [f"Alerts {words} go out again."]
    assert database.rows(muted) == [(None,)]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["backup"], 2, "Say how long"),
        (["backup", "--for", "2h", "--until", "2030-01-01T00:00Z"], 2, "Say how long"),
        (["--for", "2h"], 2, "Say what: a job, or --channel NAME, or --everything."),
        (["backup", "--everything", "--for", "2h"], 2, "Say what"),
        (["backup", "--for", "2"], 2, "for: '2' has no unit"),
        (["backup", "--until", "2020-01-01T00:00Z"], 2, "has passed already"),
        (["gone", "--for", "2h"], 1, "There is no job named 'gone'"),
        (["--channel", "gone", "--for", "2h"], 1, "There is no channel named 'gone'"),
    ],
)
def test_a_wrong_mute_is_told_in_words(
    arguments: list[str], code: int, words: str, cli: Cli, database: Database
) -> None:
    add_job(database, "backup")
    refused = cli("mute", *arguments)
    assert (refused.code, words in refused.err) == (code, True), refused.err
