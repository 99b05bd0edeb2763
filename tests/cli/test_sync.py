"""`sync` and `export`: jobs in files, as the table is to have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.support.databases import Database

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "jobs.toml"
TWO = """\
[defaults]
timezone = "Europe/Berlin"
timeout = "10m"

[jobs.clean-up]
schedule = "${CLEANUP_SCHEDULE:-0 3 * * *}"
sql = "select 1"

[jobs.backup]
schedule = "@daily"
shell = "backup --all"
after = ["clean-up"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(TWO)
    return path


def jobs(database: Database) -> list[tuple[str, str, bool]]:
    return database.rows("select name, schedule, enabled from pgcron.jobs order by name")


BOTH = [("backup", "@daily", True), ("clean-up", "0 3 * * *", True)]


def test_a_second_time_changes_nothing(cli: Cli, database: Database, file: Path) -> None:
    first = cli("sync", str(file))
    assert (first.code, first.lines[-1]) == (0, "2 new.")
    assert "Europe/Berlin" in first.out
    assert jobs(database) == BOTH
    assert database.rows(
        "select u.name, d.name from pgcron.chains c join pgcron.jobs u on u.id = c.upstream_id"
        " join pgcron.jobs d on d.id = c.downstream_id"
    ) == [("clean-up", "backup")]
    rows = database.rows("select xmin::text, name from pgcron.jobs order by name")
    again = cli("sync", str(file))
    assert (again.code, again.out) == (0, "2 as before.\n")
    assert database.rows("select xmin::text, name from pgcron.jobs order by name") == rows


def test_a_dry_run_shows_the_times_before_and_after_and_writes_nothing(
    cli: Cli, database: Database, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("sync", str(file))
    monkeypatch.setenv("CLEANUP_SCHEDULE", "30 4 * * *")
    shown = cli("sync", str(file), "--dry-run")
    assert shown.code == 0
    for words in ("0 3 * * * → 30 4 * * *", "03:00:00", "04:30:00", "1 changed", "Nothing was written"):
        assert words in shown.out, shown.out
    assert jobs(database) == BOTH


def test_what_was_edited_by_hand_is_shown_and_left_alone_unless_forced(
    cli: Cli, database: Database, file: Path
) -> None:
    cli("sync", str(file))
    cli("job", "edit", "clean-up", "--timeout", "20m")
    shown = cli("sync", str(file))
    assert shown.code == 1
    assert "20m here (by hand), 10m in jobs.toml" in shown.out
    assert database.value("select timeout = '20 minutes' from pgcron.jobs where name = 'clean-up'")
    assert cli("sync", str(file), "--force").code == 0
    assert database.value("select timeout = '10 minutes' from pgcron.jobs where name = 'clean-up'")


def test_a_job_that_others_made_is_not_taken_over(cli: Cli, database: Database, file: Path) -> None:
    cli("job", "add", "backup", "--schedule", "@hourly", "--timezone", "UTC", "--shell", "mine")
    assert cli("sync", str(file)).code == 1
    assert database.value("select command from pgcron.jobs where name = 'backup'") == "mine"


def test_prune_disables_only_what_the_file_made_and_keeps_its_history(cli: Cli, database: Database, file: Path) -> None:
    cli("sync", str(file))
    cli("job", "add", "mine", "--schedule", "@hourly", "--timezone", "UTC", "--shell", "mine")
    cli("job", "run", "backup")
    file.write_text(TWO.partition("[jobs.backup]")[0])
    assert cli("sync", str(file)).code == 0
    assert jobs(database)[0] == ("backup", "@daily", True), "without --prune it stays"
    assert cli("sync", str(file), "--prune").code == 0
    assert jobs(database) == [("backup", "@daily", False), BOTH[1], ("mine", "@hourly", True)]
    assert database.value("select removed_at is not null from pgcron.jobs where name = 'backup'")
    assert database.value("select count(*) from pgcron.runs where job_name = 'backup'") == 1
    # Back in the file it is as it was.
    file.write_text(TWO)
    assert cli("sync", str(file)).code == 0
    assert jobs(database)[0] == ("backup", "@daily", True)
    assert database.value("select count(*) from pgcron.jobs where removed_at is not null") == 0


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('"@daily"', '"0 25 * * *"', ["jobs.toml:10: jobs.backup.schedule", "25 is not from 0 to 23", "For example"]),
        ('"10m"', '"ten"', ["jobs.toml:3: defaults.timeout", "For example"]),
        ("Europe/Berlin", "Europe/Berln", ["jobs.toml:2: defaults.timezone", "Europe/Berlin"]),
        ("shell =", "shel =", ["jobs.toml:11: jobs.backup.shel", "shell"]),
        ('["clean-up"]', '["clean"]', ["jobs.toml:12: jobs.backup.after", "there is no job 'clean'"]),
        ('shell = "backup --all"', "shell = ", ["jobs.toml:11"]),
        ("[jobs.clean-up]", '[jobs.clean-up]\nafter = ["backup"]', ["would start each other for ever"]),
    ],
)
def test_a_bad_file_names_line_key_and_value_and_changes_nothing(
    cli: Cli, database: Database, file: Path, before: str, after: str, words: list[str]
) -> None:
    file.write_text(TWO.replace(before, after))
    result = cli("sync", str(file))
    assert result.code == 2
    for word in words:
        assert word in result.err, result.err
    assert jobs(database) == []


def test_yaml_and_included_files_are_read_too(cli: Cli, database: Database, tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(
        "include: [more/*.toml]\n"
        "defaults: {timezone: UTC}\n"
        "jobs:\n  one:\n    schedule: '0 3 * * *'\n    sql: select 1\n"
    )
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "two.toml").write_text('[jobs.two]\nschedule = "@daily"\nshell = "true"\n')
    assert cli("sync", str(tmp_path / "jobs.yaml")).code == 0
    assert jobs(database) == [("one", "0 3 * * *", True), ("two", "@daily", True)]
    assert database.value("select distinct timezone from pgcron.jobs") == "UTC"


def test_what_is_exported_is_read_back_as_it_is(cli: Cli, database: Database, tmp_path: Path) -> None:
    cli("sync", str(EXAMPLE))
    before = cli("export")
    copy = tmp_path / "jobs.toml"
    copy.write_text(before.out)
    shown = cli("sync", str(copy), "--dry-run")
    assert (shown.code, shown.lines[-1]) == (0, "6 as before. Nothing was written: --dry-run.")
    database.execute("delete from pgcron.jobs")
    assert cli("sync", str(copy)).code == 0
    assert cli("export").out == before.out


def test_functions_that_are_declared_are_jobs(cli: Cli, database: Database) -> None:
    assert cli("sync", "tests.examples.jobs").code == 0
    assert database.rows("select name, kind, command, args, timezone from pgcron.jobs") == [
        ("rotate-archives", "python", "tests.examples.jobs:rotate_archives", {"keep": 4}, "Europe/Berlin")
    ]


def test_the_schema_for_editors_knows_every_key_of_the_example(offline: Cli) -> None:
    schema = offline("sync", "--schema").json
    text = str(schema)
    for key in ("schedule", "timezone", "late_after", "check_ignore", "after", "defaults", "include"):
        assert f"'{key}'" in text
