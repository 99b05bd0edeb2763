"""`pgcron-runner demo` as people start it: its story, its exit codes, and that it leaves nothing behind."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

import pgcron_runner
from pgcron_runner.cli.demo import show
from pgcron_runner.cli.demo.acts import Told
from pgcron_runner.cli.demo.history import Snapshot
from pgcron_runner.cli.demo.report import judge
from pgcron_runner.model import Kind, Status, Trigger
from pgcron_runner.promises import CountedJob, RunRow, Verdict
from tests.support.waiting import eventually

_PATIENCE = 200


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A TMPDIR of its own: short enough for a socket, and open to the server's user when we are root."""
    with tempfile.TemporaryDirectory(prefix="d-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def demo(temporary: Path, *arguments: str, stdout: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "COLUMNS"))}
    environment |= {name: value for name, value in os.environ.items() if name.startswith("PGCRON_TEST_")}
    package = str(Path(pgcron_runner.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-m", "pgcron_runner", "demo", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment | {"TMPDIR": str(temporary), "PYTHONPATH": package, "TERM": "xterm", "LC_ALL": "C.UTF-8"},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def processes_in(temporary: Path) -> list[str]:
    """Everything alive that runs in a folder of the demo's, or names one in its command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            where = f"{(entry / 'cwd').readlink()} {(entry / 'cmdline').read_bytes()!r}"
            if str(temporary) in where:
                found.append(where)
    return found


def assert_nothing_left(temporary: Path) -> None:
    assert processes_in(temporary) == []
    assert list(temporary.iterdir()) == []


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What it prints up to the line that holds the text."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if text in line:
            return said
    raise AssertionError(f"it ended without saying {text!r}:\n{said}")


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(_PATIENCE)
def test_the_demo_tells_its_story_and_keeps_every_promise(temporary: Path) -> None:
    with demo(temporary, "--seconds", "10") as process:
        said, _ = process.communicate()
    assert process.returncode == 0, said
    assert re.findall(r"^Act (\d)", said, re.M) == list("123456"), said
    assert "insert into pgcron.jobs (name, schedule, timezone, kind, command)" in said
    killed = re.search(r"kill -9 (worker-\d), in the middle of backup \(run (\d+),", said)
    assert killed, said
    story = re.search(r"^ *\d+ +1 +(worker-\d) .* lost +made parts.*\n *\d+ +2 +(worker-\d) .* succeeded", said, re.M)
    assert story, said
    assert story[1] == killed[1] != story[2]
    assert said.count("✔") == 7
    assert "✘" not in said
    assert "pgcron-runner dev" in said
    assert "\x1b" not in said
    assert_nothing_left(temporary)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["Act 1", "Act 2", "report ran", "kill -9"])
def test_an_interrupt_leaves_no_process_and_no_folder(temporary: Path, moment: str) -> None:
    with demo(temporary) as process:
        read_until(process, moment)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
        assert process.returncode == 130, said
        assert "Traceback" not in said
        assert_nothing_left(temporary)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["Act 1", "Act 2", "report ran"])
def test_many_interrupts_do_not_stop_the_clearing_up(temporary: Path, moment: str) -> None:
    with demo(temporary) as process:
        read_until(process, moment)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        assert process.returncode == 130
        assert_nothing_left(temporary)


@pytest.mark.slow
def test_terminating_it_is_an_interrupt_too(temporary: Path) -> None:
    with demo(temporary) as process:
        read_until(process, "report ran")
        process.terminate()
        process.communicate()
        assert process.returncode == 130
        assert_nothing_left(temporary)


@pytest.mark.slow
@pytest.mark.faults
def test_even_kill_leaves_nothing_for_long(temporary: Path) -> None:
    with demo(temporary) as process:
        read_until(process, "backup began")
        process.kill()
        process.wait()
        eventually(lambda: not processes_in(temporary) and not list(temporary.iterdir()), timeout=30)


@pytest.mark.slow
def test_on_a_terminal_it_shows_a_live_table_and_gives_the_cursor_back(temporary: Path) -> None:
    ours, theirs = pty.openpty()
    with demo(temporary, stdout=theirs) as process:
        os.close(theirs)
        said = b""
        # The terminal is gone (EIO) when the demo has ended.
        with suppress(OSError):
            while chunk := os.read(ours, 4096):
                said += chunk
                if b"latest runs" in said and b"on worker-" in said and process.poll() is None:
                    process.send_signal(signal.SIGINT)
        os.close(ours)
        assert process.wait() == 130, said.decode()
        assert said.rindex(b"\x1b[?25h") > said.rindex(b"latest runs")
        assert_nothing_left(temporary)


def test_without_programs_it_says_so(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCRON_TEST_BIN", str(temporary))
    with demo(temporary) as process:
        said, _ = process.communicate()
    assert process.returncode == 1
    assert "holds no initdb and postgres" in said
    assert "Traceback" not in said


def a_history(status: Status) -> Told:
    """One job that was due once, and one run of it."""
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    job = CountedJob("backup", "@at 2026-03-02T12:00", "UTC", noon.replace(hour=11), noon.replace(hour=13))
    row = RunRow(1, "backup", Kind.SQL, Trigger.SCHEDULE, noon, 1, status)
    return Told([job], Snapshot(runs=(row,)), [1], [], "worker-2", 8.0, [])


def test_a_broken_promise_is_shown_and_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = a_history(Status.RUNNING)

    def perform(*_: object) -> tuple[Told, list[Verdict]]:
        return broken, judge(broken)

    monkeypatch.setattr(show, "_perform", perform)
    assert show.run_show(30) == 1
    said = capsys.readouterr().out
    assert "✘" in said
    assert "run 1 of backup is still running" in said
    assert "run 1 is running, but its work is there" in said


def test_a_kept_promise_is_exit_code_0(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    good = a_history(Status.SUCCEEDED)
    monkeypatch.setattr(show, "_perform", lambda *_: (good, judge(good)))
    assert show.run_show(30) == 0
    assert capsys.readouterr().out.count("✔") == 6
