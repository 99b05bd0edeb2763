"""`check`: what it reviews, how it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.statements.builders import add_job
from tests.support.databases import Database

EXAMPLE = Path(__file__).parents[1] / "examples" / "jobs.toml"
_CLEAN = '[jobs.nightly]\nschedule = "17 5 * * *"\ntimezone = "Europe/Berlin"\nsql = "analyze"\n'
_FAULTY = _CLEAN + '\n[jobs.eager]\nschedule = "17 5 * * *"\ntimezone = "UTC"\nshell = "a,b: 100%"\n'


@pytest.fixture
def faulty(tmp_path: Path) -> str:
    path = tmp_path / "jobs.toml"
    path.write_text(_FAULTY)
    return str(path)


def add_channel(database: Database) -> None:
    database.execute("insert into pgcron.channels (name, target) values ('ops', 'env:OPS_URL')")


# ------------------------------------------------------------------------------------------------ a database


def test_a_database_without_jobs_is_clean(cli: Cli) -> None:
    result = cli("check")
    assert (result.code, result.out) == (0, "0 jobs: nothing found.\n")


def test_jobs_in_the_database_are_reviewed_with_their_history_and_alerts(cli: Cli, database: Database) -> None:
    job_id = add_job(database, "broken", schedule="@daily")
    for day in range(3):
        database.execute(
            """insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, status, started_at,
                                        finished_at)
               select %s, 'broken', 'sql', 'schedule', at, at, 'failed', at, at
                 from (select now() - make_interval(days => %s) as at) t""",
            (job_id, day),
        )
    found = cli("check", "--format", "json").json["findings"]
    assert [(each["code"], each["job"]) for each in found] == [("PGC401", "broken"), ("PGC603", "broken")]
    add_channel(database)
    database.execute("update pgcron.jobs set check_ignore = %s", ('{"PGC603": "it is new"}',))
    result = cli("check")
    assert (result.code, result.lines) == (0, ["1 job: nothing found. 1 more is left out by check_ignore."])


def test_disabled_jobs_are_not_reviewed(cli: Cli, database: Database) -> None:
    add_job(database, kind="shell", enabled=False)
    assert cli("check").code == 0


def test_routes_of_a_channel_that_is_turned_off_reach_nobody(cli: Cli, database: Database) -> None:
    add_job(database, schedule="@daily")
    add_channel(database)
    database.execute(
        "insert into pgcron.routes (channel_id, job_pattern, tags) select id, 'jo*', '{}' from pgcron.channels"
    )
    assert cli("check").code == 0
    database.execute("update pgcron.channels set enabled = false")
    assert cli("check", "--select", "PGC4").code == 1


# --------------------------------------------------------------------------------------------------- a file


def test_the_example_file_is_clean(offline: Cli) -> None:
    result = offline("check", str(EXAMPLE))
    assert (result.code, result.out) == (0, "6 jobs: nothing found.\n")


def test_a_file_is_reviewed_without_a_database_and_says_so(offline: Cli, faulty: str) -> None:
    result = offline("check", faulty)
    assert result.code == 1
    assert result.err == "Without --dsn, their history and alerts are not looked at.\n"
    assert result.lines == [
        "PGC303 no-memory-limit",
        f"  {faulty}:6 eager: it may take all memory of its host",
        "  Fix: set memory_limit_mb to twice of what it needs; the whole process tree of the run counts.",
        "",
        "1 finding in 2 jobs.",
        "Why: pgcron-runner check --explain PGC303",
    ]


def test_with_a_dsn_a_file_is_seen_in_its_installation(offline: Cli, database: Database, faulty: str) -> None:
    found = offline("check", faulty, "--dsn", database.dsn, "--format", "json").json["findings"]
    assert [(each["code"], each["job"]) for each in found] == [
        ("PGC303", "eager"),
        ("PGC401", "eager"),
        ("PGC401", "nightly"),
    ]


def test_a_job_in_a_file_leaves_a_rule_out(offline: Cli, tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(_FAULTY + 'check_ignore = { PGC303 = "it is tiny" }\n')
    result = offline("check", str(path))
    assert (result.code, result.out) == (0, "2 jobs: nothing found. 1 more is left out by check_ignore.\n")


def test_a_file_that_cannot_be_read_is_wrong_use(offline: Cli, tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text('[jobs.x]\nschedule = "61 5 * * *"\nsql = "select 1"\n')
    result = offline("check", str(path))
    assert result.code == 2
    assert f"{path}:2" in result.err
    assert "timezone" in result.err


# ------------------------------------------------------------------------------------------------- formats


def test_json_says_everything(offline: Cli, faulty: str) -> None:
    result = offline("check", faulty, "--format", "json")
    assert (result.code, result.err) == (1, "")
    [finding] = result.json["findings"]
    assert (finding["code"], finding["job"], finding["file"], finding["line"]) == ("PGC303", "eager", faulty, 6)
    assert result.json["starts_by_minute"] == {"17": 14}


def test_github_gets_a_remark_at_the_line(offline: Cli, faulty: str) -> None:
    [line] = offline("check", faulty, "--format", "github").lines
    place = faulty.replace(":", "%3A").replace(",", "%2C")
    assert line.startswith(f"::warning file={place},line=6,title=PGC303 no-memory-limit::eager: it may take all memory")


def test_sarif_has_rules_and_places(offline: Cli, faulty: str) -> None:
    [run] = offline("check", faulty, "--format", "sarif").json["runs"]
    [rule] = run["tool"]["driver"]["rules"]
    [result] = run["results"]
    place: Any = result["locations"][0]["physicalLocation"]
    assert rule["id"] == result["ruleId"] == "PGC303"
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == (faulty, 6)


def test_many_jobs_are_shown_as_a_picture_of_the_hour(cli: Cli, database: Database) -> None:
    add_channel(database)
    for n in range(20):
        add_job(database, f"j{n}", schedule=f"0 {n} * * *", command=f"select {n}", timezone="Asia/Tokyo")
    result = cli("check")
    assert result.code == 1
    assert "  20 jobs start at minute 0 of the hour: 100% of all starts in a week" in result.lines
    at = result.lines.index("Starts of the next week by minute of the hour; 140 at minute 0:")
    assert result.lines[at + 1 : at + 3] == ["  █", "  0         10        20        30        40        50"]


def test_json_has_its_short_name_and_quiet_says_only_what_is_wrong(offline: Cli, faulty: str) -> None:
    assert offline("check", faulty, "--json").out == offline("check", faulty, "--format", "json").out
    clean = offline("check", str(EXAMPLE), "--quiet")
    assert (clean.code, clean.out, clean.err) == (0, "", "")
    assert offline("check", faulty, "--quiet").out.startswith("PGC303 ")


# -------------------------------------------------------------------------------------------------- choosing


def test_rules_are_chosen_and_left_out(offline: Cli, faulty: str) -> None:
    assert offline("check", faulty, "--select", "PGC1,quoting").code == 0
    assert offline("check", faulty, "--ignore", "no-memory-limit").code == 0
    assert offline("check", faulty, "--select", "PGC3", "--select", "PGC1").code == 1


def test_an_unknown_rule_is_wrong_use(offline: Cli, faulty: str) -> None:
    for arguments in (("--select", "nope"), ("--ignore", "nope"), ("--explain", "nope")):
        result = offline("check", faulty, *arguments)
        assert result.code == 2
        assert "'nope' is no rule" in result.err


def test_a_rule_is_explained(offline: Cli) -> None:
    by_code, by_name = offline("check", "--explain", "PGC101"), offline("check", "--explain", "overlap-allowed")
    assert by_code.out == by_name.out
    assert by_code.lines[0] == "PGC101 overlap-allowed"
    assert any(line.startswith("Fix: ") for line in by_code.lines)


def test_all_rules_are_listed(offline: Cli) -> None:
    lines = offline("check", "--explain", "all").lines
    assert lines[0].split() == ["CODE", "RULE", "WHAT"]
    assert len(lines) == 27


def test_output_of_another_program_is_valid_json(offline: Cli, faulty: str) -> None:
    for form in ("json", "sarif"):
        json.loads(offline("check", faulty, "--format", form).out)
