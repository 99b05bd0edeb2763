"""`pgcron-runner job list|show|pause|resume|run|remove`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Cli
from tests.statements.builders import add_final, add_job, add_planned_job, add_run, add_running, statuses
from tests.support.databases import Database

SOON = datetime(2100, 1, 1, 12, tzinfo=UTC)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


# ------------------------------------------------------------------------------------------------- list


def test_the_list_says_when_jobs_are_due_how_they_went_and_what_holds_them(cli: Cli, database: Database) -> None:
    fine = add_planned_job(database, "fine", next_run_at=SOON, timezone="Asia/Kolkata")
    add_final(database, fine, "succeeded", ago=timedelta(hours=2))
    add_final(database, fine, "failed", ago=timedelta(hours=1))
    add_job(database, "off", enabled=False)
    add_job(database, "paused", paused_until=SOON)
    broken = add_planned_job(database, "broken", next_run_at=None)
    database.execute("update pgcron.jobs set problem = 'schedule: no' where id = %s", (broken,))
    add_planned_job(database, "over", next_run_at=None)
    add_planned_job(database, "late", next_run_at=datetime(2020, 1, 1, tzinfo=UTC))
    result = cli("job", "list")
    assert (result.code, result.err) == (0, "")
    titles, *lines = result.lines
    assert " ".join(titles.split()) == "NAME KIND SCHEDULE ZONE NEXT AT LAST ENDED QUEUE PROBLEM"
    rows = {cells(line)[0]: cells(line) for line in lines}
    assert list(rows) == ["broken", "fine", "late", "off", "over", "paused"]
    assert rows["fine"][1:4] == ["sql", "* * * * *", "Asia/Kolkata"]
    assert rows["fine"][4].startswith("in ")
    assert rows["fine"][5:7] == ["2100-01-01 17:30:00 +05:30", "failed"]
    assert rows["broken"][4] == "problem"
    assert rows["broken"][-1] == "schedule: no"
    assert rows["off"][4] == "disabled"
    assert rows["over"][4] == "never"
    assert rows["paused"][4] == "paused"
    assert rows["late"][4].startswith("due ")
    assert rows["late"][4].endswith(" ago")


def test_a_job_that_no_worker_has_planned_yet_has_its_next_time_nevertheless(cli: Cli, database: Database) -> None:
    add_job(database, schedule="0 3 * * *", starts_at=datetime(2100, 5, 5, 3, tzinfo=UTC))
    [job] = cli("job", "list", "--json").json
    assert (job["planned"], job["next_run_at"]) == (False, "2100-05-05T03:00:00Z")
    assert cli("job", "show", "job", "--json").json["next_run_at"] == "2100-05-05T03:00:00Z"


def test_a_pause_puts_the_next_time_off(cli: Cli, database: Database) -> None:
    add_job(database, schedule="0 3 * * *", paused_until=datetime(2100, 5, 5, 3, tzinfo=UTC))
    assert cli("job", "list", "--json").json[0]["next_run_at"] == "2100-05-05T03:00:00Z"


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ((), ["a", "b", "c"]),
        (("--queue", "reports"), ["b"]),
        (("--tag", "big"), ["a"]),
        (("--kind", "shell"), ["c"]),
        (("--problem",), ["c"]),
        (("--kind", "shell", "--tag", "big"), []),
    ],
)
def test_filters(filters: tuple[str, ...], names: list[str], cli: Cli, database: Database) -> None:
    add_job(database, "a", tags=["big", "old"])
    add_job(database, "b", queue="reports")
    add_planned_job(database, "c", kind="shell", next_run_at=None)
    database.execute("update pgcron.jobs set problem = 'no' where name = 'c'")
    assert [job["name"] for job in cli("job", "list", *filters, "--json").json] == names
    result = cli("job", "list", *filters)
    assert all(name in result.out for name in names)
    if not names:
        assert (result.out, result.err) == ("", "There is no such job.\n")


def test_no_jobs_at_all_says_how_to_begin(cli: Cli) -> None:
    assert cli("job", "list").err == "There are no jobs. See: pgcron-runner job add --help\n"
    assert cli("job", "list", "--json").json == []


def test_a_long_list_says_that_it_goes_on(cli: Cli, database: Database) -> None:
    database.execute(
        """insert into pgcron.jobs (name, kind, command, schedule, timezone)
           select 'job-' || lpad(i::text, 3, '0'), 'sql', 'x', '@daily', 'UTC' from generate_series(1, 201) i"""
    )
    result = cli("job", "list", "--json")
    assert [job["name"] for job in result.json] == [f"job-{i:03}" for i in range(1, 201)]
    assert result.err == "These are the first 200. --all shows all, --queue, --tag and --kind show fewer.\n"
    everything = cli("job", "list", "--all", "--json")
    assert (len(everything.json), everything.err) == (201, "")


def test_problems_are_told_in_full(cli: Cli, database: Database) -> None:
    add_planned_job(database, "broken", next_run_at=None)
    problem = "schedule: " + "very " * 50 + "wrong"
    database.execute("update pgcron.jobs set problem = %s", (problem,))
    assert cli("job", "list", "--problem").lines == [f"broken  {problem}"]


def test_texts_of_users_reach_the_terminal_as_text_only(cli: Cli, database: Database) -> None:
    add_job(database, "[red]x[/red]\u202e", schedule="* * * * *", command="echo '\x1b[31m[bold]'", kind="shell")
    result = cli("job", "list")
    assert "[red]x[/red]\\u202e" in result.out
    result = cli("job", "show", "[red]x[/red]\u202e")
    assert "echo '\\x1b[31m[bold]'" in result.out
    assert "\x1b" not in result.out
    assert "\x1b" not in cli("job", "show", "[red]x[/red]\u202e", "--json").out


# ------------------------------------------------------------------------------------------------- show


def test_show_has_the_definition_the_next_times_and_the_last_runs(cli: Cli, database: Database) -> None:
    job_id = add_planned_job(
        database, "nightly", next_run_at=SOON, schedule="0 12 * * *", timeout=timedelta(minutes=90), tags=["a", "b"]
    )
    run_ids = [add_final(database, job_id, "failed", ago=timedelta(hours=hours), error="boom") for hours in range(12)]
    result = cli("job", "show", "nightly")
    assert result.code == 0
    facts = dict(line.split(maxsplit=1) for line in result.out.split("\n\n")[0].splitlines())
    assert facts["name"] == "nightly"
    assert facts["state"].startswith("next in ")
    assert (facts["timeout"], facts["tags"], facts["schedule"]) == ("1h30m", "a, b", "0 12 * * *")
    assert "retry_delay" not in facts  # it is never tried again
    times = result.out.split("Next times\n")[1].split("\n\n")[0].splitlines()
    assert [line[4:24] for line in times[1:]] == [f"2100-01-0{day} 12:00:00Z" for day in range(1, 6)]
    runs = result.out.split("Last runs\n")[1].splitlines()
    assert [int(line.split()[0]) for line in runs[1:]] == run_ids[:10]
    assert all("failed" in line and "boom" in line for line in runs[1:])


def test_show_as_json_has_every_column(cli: Cli, database: Database) -> None:
    job_id = add_planned_job(database, next_run_at=SOON, schedule="0 12 * * *", env={"A": "1"})
    add_running(database, job_id)
    shown = cli("job", "show", "job", "--json").json
    columns = database.rows("select column_name from information_schema.columns where table_name = 'jobs'")
    assert {row[0] for row in columns} <= set(shown)
    assert (shown["timeout"], shown["env"], shown["running"], shown["queued"]) == (3600, {"A": "1"}, 1, 0)
    assert shown["next_times"] == [f"2100-01-0{day}T12:00:00Z" for day in range(1, 6)]
    assert [run["status"] for run in shown["last_runs"]] == ["running"]


def test_show_tells_a_problem_and_a_job_that_has_not_run(cli: Cli, database: Database) -> None:
    add_planned_job(database, "broken", next_run_at=None)
    database.execute("update pgcron.jobs set problem = 'schedule: no'")
    facts, _, rest = cli("job", "show", "broken").out.partition("\n\n")
    assert dict(line.split(maxsplit=1) for line in facts.splitlines())["problem"] == "schedule: no"
    assert rest == "Last runs\nIt has not run yet.\n"


def test_show_says_a_schedule_in_words_where_few_say_all(cli: Cli, database: Database) -> None:
    add_planned_job(database, "plain", next_run_at=SOON, schedule="0 9 * * mon-fri")
    add_planned_job(database, "odd", next_run_at=SOON, schedule="*/7 * * * *")
    assert re.search(r"^in words +At 09:00, Monday to Friday$", cli("job", "show", "plain").out, re.MULTILINE)
    assert "in words" not in cli("job", "show", "odd").out


# ---------------------------------------------------------------------------------------- pause and resume


def test_a_pause_without_an_end_disables_and_resume_undoes_it(cli: Cli, database: Database) -> None:
    job_id = add_job(database, schedule="0 3 * * *")
    add_run(database, job_id)
    result = cli("job", "pause", "job")
    assert (result.code, result.lines) == (
        0,
        ["Job job is disabled. Resume it: pgcron-runner job resume job", "1 queued run cancelled."],
    )
    assert database.value("select enabled from pgcron.jobs") is False
    assert statuses(database, job_id) == ["cancelled"]
    assert cli("job", "pause", "job").lines[0].startswith("Job job is still disabled.")
    result = cli("job", "resume", "job")
    assert result.out.startswith("Job job is enabled: next at ")
    assert database.rows("select enabled, paused_until from pgcron.jobs") == [(True, None)]


def test_a_pause_until_a_local_time_is_in_the_zone_of_the_job(cli: Cli, database: Database) -> None:
    job_id = add_job(database, timezone="Europe/Berlin")
    add_running(database, job_id)
    result = cli("job", "pause", "job", "--until", "2100-01-31T09:00")
    assert result.lines == [
        "Job job is paused until 2100-01-31 09:00:00 +01:00 (2100-01-31 08:00:00Z).",
        "1 run still running; stop with: pgcron-runner runs cancel ID",
    ]
    assert database.rows("select enabled, paused_until from pgcron.jobs") == [
        (True, datetime(2100, 1, 31, 8, tzinfo=UTC))
    ]


def test_a_pause_that_is_over_already_is_refused(cli: Cli, database: Database) -> None:
    add_job(database)
    result = cli("job", "pause", "job", "--until", "2020-01-01T00:00Z")
    assert result.code == 2
    assert result.err.startswith("Error: until: '2020-01-01T00:00Z' has passed already. For example: ")
    assert database.value("select paused_until from pgcron.jobs") is None


def test_a_pause_does_not_enable_what_is_disabled(cli: Cli, database: Database) -> None:
    add_job(database, enabled=False)
    assert "is still disabled" in cli("job", "pause", "job", "--until", "2100-01-01T00:00Z").out
    assert database.value("select enabled from pgcron.jobs") is False


# ------------------------------------------------------------------------------------------ run and remove


def test_run_queues_a_manual_run_with_its_own_args(cli: Cli, database: Database) -> None:
    job_id = add_job(database, "by hand", enabled=False)
    result = cli("job", "run", "by hand", "--args", '{"month": "2027-01"}')
    assert result.code == 0
    [(run_id, *facts)] = database.rows("select id, job_id, trigger, status, args from pgcron.runs")
    assert result.out == f"Run {run_id} of job by hand is queued.\n"
    assert facts == [job_id, "manual", "queued", {"month": "2027-01"}]
    cli("job", "run", "by hand")
    assert database.rows("select args from pgcron.runs order by id") == [({"month": "2027-01"},), (None,)]


def test_remove_asks_and_without_anybody_to_ask_does_nothing(cli: Cli, database: Database) -> None:
    add_job(database)
    result = cli("job", "remove", "job")
    assert (result.code, result.err) == (1, "Error: Nobody is there to be asked. Say --yes to remove it.\n")
    assert database.value("select count(*) from pgcron.jobs") == 1


def test_removing_a_job_keeps_its_history(cli: Cli, database: Database) -> None:
    job_id = add_job(database, "old one")
    done, queued = add_final(database, job_id, ago=timedelta(hours=1)), add_run(database, job_id)
    result = cli("job", "remove", "old one", "--yes")
    assert result.lines == [
        "Removed job old one. Its history stays: pgcron-runner runs list 'old one'",
        "1 queued run cancelled.",
    ]
    assert database.value("select count(*) from pgcron.jobs") == 0
    assert [(run["id"], run["status"]) for run in cli("runs", "list", "old one", "--json").json] == [
        (queued, "cancelled"),
        (done, "succeeded"),
    ]
    assert cli("runs", "show", str(done)).code == 0
