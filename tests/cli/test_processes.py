"""The program as it is started: with workers beside it, in pipes, interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pgcron_runner
from pgcron_runner.statements import migrations
from tests.cli.conftest import Cli
from tests.conftest import StartWorker
from tests.statements.builders import add_job
from tests.support.databases import Database
from tests.support.waiting import eventually

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
ENVIRONMENT |= {"PYTHONPATH": str(Path(pgcron_runner.__file__).parents[1])}
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `python -m pgcron_runner …`; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def call(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "pgcron_runner", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT | {"PYTHONUNBUFFERED": "1"},
        )
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


# ------------------------------------------------------------------------------------------ wait and follow


def test_wait_follows_a_run_to_its_success(
    cli: Cli, database: Database, start_worker: StartWorker, start: Start
) -> None:
    add_job(database, kind="shell", command="echo hello", schedule="@manual")
    waiting = start("job", "run", "job", "--wait", "--dsn", database.dsn)
    eventually(lambda: database.value("select count(*) from pgcron.runs where status = 'queued'"))
    worker = start_worker("--once")
    out, err = waiting.communicate(timeout=30)
    assert worker.wait() == 0, worker.log()
    run_id = database.value("select id from pgcron.runs")
    assert waiting.returncode == 0
    assert out.splitlines()[0] == f"Run {run_id} of job job is queued."
    assert out.splitlines()[-1].startswith(f"Run {run_id}: succeeded after ")
    assert err == ("It waits: no worker is alive that runs shell jobs of queue default. See: pgcron-runner workers\n")
    assert cli("runs", "logs", str(run_id)).out == "hello\n"


def test_wait_follows_the_attempts_to_the_last_and_fails_with_it(
    cli: Cli, database: Database, start_worker: StartWorker
) -> None:
    add_job(database, kind="shell", command="exit 3", schedule="@manual", max_attempts=2, retry_delay="10 ms")
    start_worker()
    eventually(lambda: database.value("select count(*) from pgcron.workers"))
    result = cli("job", "run", "job", "--wait")
    first, second = (row[0] for row in database.rows("select id from pgcron.runs order by id"))
    told = [line for line in result.lines if " is running on " not in line]
    assert (result.code, result.err) == (1, "")
    assert told[0] == f"Run {first} of job job is queued."
    assert told[1].startswith(f"Run {first}: failed after ")
    assert told[1].endswith(": exited with code 3")
    assert told[2].startswith(f"Attempt 2 is run {second}, ")
    assert told[3].startswith(f"Run {second}: failed after ")


def test_cancel_waits_for_the_end_and_logs_follow_to_it(
    cli: Cli, database: Database, start_worker: StartWorker, start: Start
) -> None:
    add_job(database, kind="shell", command="echo begun; exec sleep 60", schedule="@manual")
    start_worker()
    cli("job", "run", "job")
    run_id = eventually(lambda: database.value("select id from pgcron.runs where status = 'running'"))
    following = start("runs", "logs", str(run_id), "--follow", "--dsn", database.dsn)
    result = cli("runs", "cancel", str(run_id), "--wait")
    assert result.code == 0, result.err
    assert result.lines[-1].startswith(f"Run {run_id}: cancelled after ")
    out, _ = following.communicate(timeout=30)
    assert (following.returncode, out) == (0, "begun\n")


def test_an_interrupted_wait_ends_without_a_word_and_the_run_stays(database: Database, start: Start) -> None:
    add_job(database, schedule="@manual")
    waiting = start("job", "run", "job", "--wait", "--dsn", database.dsn)
    assert waiting.stderr is not None
    assert "It waits: no worker is alive" in waiting.stderr.readline()
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, err) == (130, "")
    assert database.value("select status from pgcron.runs") == "queued"


# ------------------------------------------------------------------------------------------------- worker


def test_a_worker_once_does_what_is_due_and_ends(cli: Cli, database: Database, start_worker: StartWorker) -> None:
    add_job(database, "mine", queue="reports", schedule="@manual")
    add_job(database, "other", schedule="@manual")
    cli("job", "run", "mine")
    cli("job", "run", "other")
    worker = start_worker("--once", "--queues", "reports", "--kinds", "sql,shell", "--name", "w-7", "--log-json")
    assert worker.wait() == 0, worker.log()
    assert dict(database.rows("select job_name, status from pgcron.runs")) == {"mine": "succeeded", "other": "queued"}
    assert database.rows("select name, queues, kinds, slots, end_reason from pgcron.workers") == [
        ("w-7", ["reports"], ["sql", "shell"], 10, "stopped")
    ]
    assert '"event": "worker_started"' in worker.log()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_is_told_to_stop_ends_in_order(signum: signal.Signals, database: Database, start: Start) -> None:
    worker = start("worker", "--dsn", database.dsn, "--log-level", "warning")
    eventually(lambda: database.value("select count(*) from pgcron.workers"))
    worker.send_signal(signum)
    out, err = worker.communicate(timeout=30)
    assert (worker.returncode, out, err) == (0, "", "")
    assert database.value("select end_reason from pgcron.workers") == "stopped"


def test_a_worker_without_a_database_ends_with_one_line(start: Start) -> None:
    worker = start("worker", "--once", "--dsn", "host=/nonexistent dbname=x")
    out, err = worker.communicate(timeout=30)
    assert (worker.returncode, out) == (1, "")
    assert err.splitlines()[-1].startswith("Error: Postgres cannot be reached: ")
    assert "Traceback" not in err


# --------------------------------------------------------------------------------- migrate, version, pipes


def test_migrate_shows_applies_and_is_content(offline: Cli, empty_database: Database) -> None:
    dsn = ("--dsn", empty_database.dsn)
    newest = migrations()[-1].version
    preview = offline("migrate", "--dry-run", *dsn)
    assert preview.code == 0
    for migration in migrations():
        assert f"-- {migration.version:04}_{migration.name}\n{migration.text.rstrip()}\n" in preview.out
    assert empty_database.value("select to_regnamespace('pgcron')") is None
    applied = [f"applied {migration.version:04}_{migration.name}" for migration in migrations()]
    assert offline("migrate", *dsn).lines == [*applied, f"schema is now at version {newest}"]
    again = offline("migrate", *dsn)
    assert (again.code, again.out) == (0, f"schema is up to date (version {newest})\n")
    preview = offline("migrate", "--dry-run", *dsn)
    assert (preview.code, preview.out, preview.err) == (0, "", f"schema is up to date (version {newest})\n")


def test_the_version_is_printed(offline: Cli) -> None:
    assert offline("--version").out == f"pgcron-runner {pgcron_runner.__version__}\n"


def test_a_reader_that_has_had_enough_is_no_error(database: Database) -> None:
    database.execute(
        """insert into pgcron.jobs (name, kind, command, schedule, timezone)
           select 'job-' || i, 'sql', 'x', '@daily', 'UTC' from generate_series(1, 3000) i"""
    )
    done = subprocess.run(
        ["sh", "-c", '"$0" -m pgcron_runner job list --all --json | head -n 1', sys.executable],
        env=ENVIRONMENT | {"PGCRON_DSN": database.dsn},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[\n", "")


def test_a_pipe_that_knows_few_letters_gets_the_others_spelt_out(database: Database) -> None:
    add_job(database, "日")
    done = subprocess.run(
        [sys.executable, "-m", "pgcron_runner", "job", "list"],
        env=ENVIRONMENT | {"PGCRON_DSN": database.dsn, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u65e5" in done.stdout


# --------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize(
    "command",
    [
        "",
        "demo",
        "dev",
        "migrate",
        "worker",
        "next",
        "job",
        "job add",
        "job list",
        "job show",
        "job pause",
        "job resume",
        "job run",
        "job remove",
        "runs",
        "runs list",
        "runs show",
        "runs logs",
        "runs cancel",
        "workers",
        "status",
    ],
)
def test_every_command_explains_itself_in_plain_text_when_piped(command: str, offline: Cli) -> None:
    result = offline(*command.split(), "--help")
    assert (result.code, result.err) == (0, "")
    assert f"Usage: pgcron-runner {command}".rstrip() in result.out
    assert not set("╭│\x1b\b") & set(result.out)
    if command not in ("job", "runs", "demo", "dev"):
        assert "Examples:\n" in result.out
        assert f"    pgcron-runner {command}".rstrip() in result.out


@pytest.mark.parametrize("command", ["", "job", "runs"])
def test_without_a_command_its_help_is_shown_as_wrong_use(command: str, offline: Cli) -> None:
    result = offline(*command.split())
    assert (result.code, result.out) == (2, "")
    assert "Commands:" in result.err
