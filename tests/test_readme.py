"""Every command of the README is run as it is written; only places of this machine are put in."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conftest import StartWorker
from tests.support.databases import Database
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ONE_LINERS = re.findall(r"^ {4}(python3 -m venv .+)$", README, re.MULTILINE)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = "".join(blocks("sh")).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip()]


@pytest.fixture
def environment(database: Database, tmp_path: Path) -> dict[str, str]:
    """A PATH on which `pgcron-runner` is this checkout, and a database."""
    script = tmp_path / "bin" / "pgcron-runner"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pgcron_runner "$@"\n')
    script.chmod(0o755)
    path = f"{script.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PGCRON_DSN": database.dsn, "PYTHONPATH": str(ROOT)}


def test_the_readme_is_as_long_as_it_should_be_and_begins_with_two_one_liners() -> None:
    assert 150 <= len(README.splitlines()) <= 250
    assert [("demo" in line, "pytest" in line) for line in ONE_LINERS] == [(True, False), (False, True)]
    assert README.index(ONE_LINERS[1]) < README.index("## ")


@pytest.mark.slow
def test_every_command_works_in_the_order_of_the_page(
    database: Database, environment: dict[str, str], tmp_path: Path, start_worker: StartWorker
) -> None:
    assert len(commands()) > 15
    (file,) = blocks("toml")
    (tmp_path / "jobs.toml").write_text(file)
    # `status` is content only where a worker lives.
    start_worker()
    eventually(lambda: database.value("select count(*) from pgcron.workers"))
    for command in commands():
        if command.startswith("export PGCRON_DSN="):
            assert "postgresql://" in command
        elif command.startswith("pip install"):
            here = command.replace("pgcron-runner[", f"{ROOT}[")
            run(here.replace("install", "install -q --dry-run --no-deps"), environment, tmp_path)
        elif command == "pgcron-runner dev":
            # Not in pytest's own folder, which the server's user cannot enter where the tests run as root.
            with tempfile.TemporaryDirectory(prefix="pgcron-readme-") as folder:
                Path(folder).chmod(0o755)
                run_until_ready(f"{command} --data {folder}/postgres", environment, tmp_path)
        elif command == "pgcron-runner worker":
            run_until_ready(command, environment, tmp_path)
        else:
            run(command, environment, tmp_path)
    names = {row[0] for row in database.rows("select name from pgcron.jobs")}
    assert names == {"clean-up", "backup", "report", "warm-cache", "archive"}


def test_every_sql_block_works(database: Database) -> None:
    for block in blocks("sql"):
        for statement in block.split(";"):
            if statement.strip():
                database.execute(statement.encode())  # type: ignore[arg-type]
    assert database.rows("select name, schedule from pgcron.jobs") == [("refresh-totals", "*/10 * * * *")]


def test_every_column_and_option_that_is_named_exists(environment: dict[str, str], tmp_path: Path) -> None:
    help_texts = "".join(
        run(f"pgcron-runner {command} --help", environment, tmp_path)
        for command in (
            *("worker", "job add", "job edit", "job pause", "job resume", "next", "backfill", "calendar days"),
            *("runs list", "runs show", "runs logs", "migrate", "dev", "demo", "chain add", "route add", "mute"),
            *("step next", "sync", "check", "top"),
        )
    )
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - {"--dry-run", "--all"}
    assert [option for option in sorted(options) if option not in help_texts] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_command_tells_its_story_on_a_clean_copy(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "dist", "build")
    copy = shutil.copytree(ROOT, tmp_path / "clone", ignore=ignored)
    done = subprocess.run(ONE_LINERS[0], shell=True, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost" in done.stdout


def run(command: str, environment: dict[str, str], folder: Path) -> str:
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_until_ready(command: str, environment: dict[str, str], folder: Path) -> None:
    log = folder / "ready.log"
    with log.open("w") as file:
        process = subprocess.Popen(shlex.split(command), cwd=folder, env=environment, stdout=file, stderr=file)
        try:
            eventually(lambda: "worker_started" in log.read_text(), 60, message=f"{command} to be ready")
            process.send_signal(signal.SIGINT)
            assert process.wait(30) in (0, 130), log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
