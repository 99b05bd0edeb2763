"""Whatever is wrong is told in one or two lines on standard error, with the field and an example, and an exit code."""

from __future__ import annotations

import pytest
from psycopg import sql

from pgcron_runner.cli.app import run
from tests.cli.conftest import Cli
from tests.statements.builders import text_of
from tests.support.databases import Database

ADD = ("job", "add", "x", "--schedule", "@daily", "--timezone", "UTC", "--sql", "select 1")


def add(**changed: str) -> tuple[str, ...]:
    """`ADD` with other values for its options."""
    options = {"--schedule": "@daily", "--timezone": "UTC", "--sql": "select 1"}
    options |= {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
    return ("job", "add", "x", *(part for option in options.items() for part in option))


# All of these are found out without a database: there is none.
WRONG = [
    (add(timezone="Europe/Berln"), "timezone: 'Europe/Berln'", "For example: Europe/Berlin"),
    (add(timezone="CET"), "timezone: 'CET' is an abbreviation", "For example: Europe/Berlin"),
    (add(timezone=""), "timezone: it must be said", "--timezone Europe/Berlin"),
    (add(schedule="61 * * * *"), "schedule: '61 * * * *'", "For example: "),
    (add(schedule="0 3 * *"), "schedule: '0 3 * *'", "For example: "),
    (add(schedule="@reboot"), "schedule: '@reboot'", "For example: "),
    (add(schedule="@every 10"), "schedule: '@every 10' has no unit", "For example: @every 90s"),
    (add(timeout="5"), "timeout: '5' has no unit", "For example: 5s"),
    (add(timeout="soon"), "timeout: 'soon' is not a duration", "For example: 90s"),
    (add(timeout="500d"), "timeout: '500d' is longer than 360d", "For example: 360d"),
    (add(timeout="0s"), "timeout: '0s' is shorter than 1ms", "For example: "),
    (add(kill_grace="2h"), "kill-grace: '2h' is longer than 1h", "For example: 1h"),
    (add(jitter="2d"), "jitter: '2d' is longer than 1d", "For example: 1d"),
    (add(retry_delay="-1s"), "retry-delay: '-1s' is not a duration", "For example: "),
    (add(overlap="never"), "'--overlap': 'never' is not one of 'skip', 'queue_one'", "job add --help"),
    (add(catch_up="none"), "'--catch-up': 'none' is not one of 'skip', 'latest', 'all'", "job add --help"),
    (add(attempts="0"), "'--attempts': 0 is not in the range", "1<=x"),
    (add(attempts="many"), "'--attempts'", "job add --help"),
    (add(priority="40000"), "'--priority': 40000 is not in the range", "x<=32767"),
    (add(queue="two words"), "queue: 'two words'", "For example: reports"),
    (add(env="LEVEL"), "env: 'LEVEL' has no value", "For example: LEVEL=info"),
    (add(env="1X=y"), "env: '1X' is not the name of a variable", "For example: LEVEL=info"),
    (add(env_from="A-B"), "env-from: 'A-B' is not the name of a variable", "For example: API_TOKEN"),
    (add(args="[1]"), "args: '[1]' is not a JSON object", "For example: "),
    (add(args="{"), "args: '{' is not JSON", "For example: "),
    (add(args='{"a": NaN}'), "args: ", "is not JSON"),
    (add(args=r'{"a": "\u0000"}'), "args: ", "has a character that Postgres cannot store"),
    (add(args=r'{"a": "\ud800"}'), "args: ", "has a character that Postgres cannot store"),
    (add(tag=" "), "tag: ' ' is not a word", "For example: reports"),
    (add(starts_at="tomorrow"), "starts-at: 'tomorrow' is not a date and time", "For example: 2027-01-31T09:00"),
    (add(starts_at="2027-02-30"), "starts-at: '2027-02-30' names a date or time that does not exist", "For example: "),
    (add(starts_at="0001-01-01T00:00+14:00"), "names a date or time that does not exist", "For example: "),
    (
        add(starts_at="2027-02-02", ends_at="2027-02-01"),
        "ends-at: '2027-02-01' is not after starts-at",
        "For example: ",
    ),
    (add(timezone="Europe/Berlin", ends_at="2027-03-28T02:30"), "skip; say its offset", "2027-03-28T03:30:00+02:00"),
    (add(timezone="Europe/Berlin", ends_at="2027-10-31T02:30"), "show twice; say its offset", "02:30:00+02:00"),
    (add(max_running="2"), "max-running: 2 needs overlap allow", "--overlap allow --max-running 2"),
    (add(sql=" "), "sql: ' ' is empty", "For example: "),
    (add(shell="true"), "kind: say only one thing to run", "For example: --sql"),
    (("job", "add", " x", *ADD[3:]), "name: ' x'", "For example: nightly-report"),
    (("job", "add", "x" * 101, *ADD[3:]), "is not 1 to 100 characters", "For example: nightly-report"),
    (("job", "add", "a\x1b[31m", *ADD[3:]), r"name: 'a\x1b[31m'", "For example: nightly-report"),
    ((*ADD[:-2], "--python", "reports.send"), "python: 'reports.send'", "For example: myapp.reports:send_daily"),
    (ADD[:-2], "kind: say what to run", "For example: --sql"),
    (("job", "add", "x", "--sql", "select 1"), "Missing option '--schedule'", "job add --help"),
    (("job", "lst"), "No such command 'lst'", "'list'"),
    (("job", "list", "--kind", "perl"), "'--kind': 'perl' is not one of 'shell', 'sql'", "job list --help"),
    (("job", "list", "--nonsense"), "No such option: --nonsense", "job list --help"),
    (("job", "run", "x", "--args", "1"), "args: '1' is not a JSON object", "For example: "),
    (("runs", "show", "x"), "'ID': 'x' is not a valid int", "runs show --help"),
    (("runs", "show", "0"), "'ID': 0 is not in the range", "1<=x"),
    (("runs", "list", "--status", "dead"), "'--status': 'dead' is not one of", "runs list --help"),
    (("runs", "list", "--limit", "0"), "'--limit': 0 is not in the range", "1<=x"),
    (("next", "0 3 * * *"), "timezone: it must be said", "--timezone Europe/Berlin"),
    (("next", "@daily", "--timezone", "UTC", "--from", "now"), "from: 'now' is not a date", "For example: "),
    (("next", "@daily", "--timezone", "UTC", "--count", "0"), "'--count'", "next --help"),
    (("worker", "--kinds", "sql,perl"), "kinds: 'perl' is not a kind of job", "For example: sql,shell"),
    (("worker", "--kinds", ","), "kinds: ',' names no kind of job", "For example: sql,shell"),
    (("worker", "--queues", "a b"), "queues: 'a b'", "For example: reports"),
    (("worker", "--queues", ""), "queues: '' names no queue", "For example: default,reports"),
    (("worker", "--slots", "0"), "slots: 0 is not between 1 and 10000", "For example: --slots 10"),
    (("worker", "--lease", "1s"), "is shorter than 2 seconds", "For example: --lease 30s"),
    (("worker", "--lease", "30"), "lease: '30' has no unit", "For example: 30s"),
    (("worker", "--poll", "0s"), "poll: '0s' is shorter than 1ms", "For example: "),
    (("worker", "--name", ""), "name: '' is not 1 to 100 characters long", "For example: --name web-1"),
    (("worker", "--log-level", "loud"), "'--log-level': 'loud' is not one of", "worker --help"),
    (("job", "list", "--dsn", "postgresql://u:hunter2@h/x?bad=1"), "dsn: ", "For example: postgresql://user@host"),
]


@pytest.mark.parametrize(("arguments", "said", "helped"), WRONG, ids=lambda value: " ".join(value)[:40])
def test_wrong_use_is_told_with_its_field_and_what_would_be_right(
    arguments: tuple[str, ...], said: str, helped: str, offline: Cli
) -> None:
    result = offline(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Error: ")
    assert len(result.err.splitlines()) <= 2
    assert said in result.err
    assert helped in result.err
    assert "\x1b" not in result.err
    assert "hunter2" not in result.err


@pytest.mark.parametrize(
    ("sqlstate", "code", "told"),
    [
        ("check_violation", 2, "Error: queue: default is closed. Use another.\n"),
        ("raise_exception", 1, "Error: Postgres could not do it: queue: default is closed.\n"),
    ],
)
def test_what_only_the_database_refuses_is_told_in_its_words(
    sqlstate: str, code: int, told: str, cli: Cli, database: Database
) -> None:
    database.execute(
        """create function public.refuse() returns trigger language plpgsql as $$ begin
           raise exception 'queue: % is closed', new.queue using errcode = tg_argv[0], hint = 'Use another.';
           end $$"""
    )
    trigger = "create trigger refuse before insert on pgcron.jobs for each row execute function public.refuse({})"
    database.execute(text_of(sql.SQL(trigger).format(sql.Literal(sqlstate))))
    result = cli(*ADD)
    assert (result.code, result.err) == (code, told)


def test_a_check_without_words_names_its_field(cli: Cli, database: Database) -> None:
    database.execute("alter table pgcron.jobs add constraint jobs_working_dir_check check (working_dir = '/')")
    result = cli(*ADD, "--working-dir", "/tmp")
    assert result.code == 2
    assert result.err == "Error: working_dir: the database does not accept this value (jobs_working_dir_check).\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("job", "show", "nope"),
        ("job", "pause", "nope"),
        ("job", "resume", "nope"),
        ("job", "run", "nope"),
        ("job", "remove", "nope", "--yes"),
        ("runs", "list", "nope"),
        ("runs", "show", "4711"),
        ("runs", "logs", "4711"),
        ("runs", "cancel", "4711"),
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_a_failure_that_says_where_to_look(arguments: tuple[str, ...], cli: Cli) -> None:
    result = cli(*arguments)
    assert (result.code, result.out) == (1, "")
    assert "There is no " in result.err
    assert "pgcron-runner " in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [("job", "list"), ("runs", "list"), ("workers",), ("status",), ADD], ids=" ".join)
def test_a_server_that_is_not_there_is_one_sentence(arguments: tuple[str, ...], offline: Cli) -> None:
    result = offline(*arguments, "--dsn", "host=/nonexistent password=hunter2 dbname=x")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("Error: Postgres cannot be reached: ")
    assert len(result.err.splitlines()) == 1
    assert "hunter2" not in result.err


def test_a_database_without_the_schema_says_what_to_do(offline: Cli, empty_database: Database) -> None:
    result = offline("job", "list", "--dsn", empty_database.dsn)
    assert (result.code, result.err) == (
        1,
        "Error: This database has no pgcron schema yet. Run: pgcron-runner migrate\n",
    )


def test_a_role_without_rights_is_told_so(offline: Cli, database: Database) -> None:
    result = offline("job", "list", "--dsn", database.worker_dsn)
    assert result.code == 1
    assert "schema" in result.err
    assert len(result.err.splitlines()) == 1


def test_an_argument_that_is_no_utf_8_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["job", "show", "caf\udce9"]) == 2
    assert capsys.readouterr().err == "Error: An argument is not valid UTF-8.\n"


def test_a_long_text_is_not_repeated_whole(offline: Cli) -> None:
    result = offline(*add(schedule="0 3 * * * " + "x" * 5000))
    assert result.code == 2
    assert len(result.err) < 800
    assert result.err.startswith("Error: schedule: ")
