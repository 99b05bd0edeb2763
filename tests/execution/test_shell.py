"""Commands of jobs, from their text to the outcome that is recorded."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner.clock import boottime
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.processes import Guard
from pgcron_runner.execution.shell import run_shell
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Kind, Outcome, RetryPolicy, Status, StopReason, Task

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper and /proc")
WORKERS_OWN = {
    **os.environ,
    "HOME": "/home/worker",
    "LC_TIME": "C",
    "PGPASSWORD": "s3cr3t",
    "PGCRON_DSN": "postgresql://u:s3cr3t@h/d",
    "DATABASE_URL": "postgresql://u:s3cr3t@h/d",
    "AWS_SECRET_ACCESS_KEY": "s3cr3t",
    "TOKEN": "t0ken",
}


def task(command: str, **changes: Any) -> Task:
    values: dict[str, Any] = {
        "run_id": 77,
        "job_id": 5,
        "job_name": "nightly",
        "kind": Kind.SHELL,
        "command": command,
        "args": {},
        "scheduled_for": datetime(2026, 3, 1, 19, 0, tzinfo=timezone(timedelta(hours=1))),
        "attempt": 2,
        "exclusive": True,
        "timeout": timedelta(hours=1),
        "kill_grace": timedelta(seconds=10),
        "retry": RetryPolicy(),
    }
    return Task(**(values | changes))


@pytest.fixture
async def guard() -> AsyncIterator[Guard]:
    guard = Guard.start()
    yield guard
    await guard.close()


@pytest.fixture
def marker() -> str:
    # sleep takes several numbers and adds them up.
    return f"0.{uuid.uuid4().int}"


async def run(guard: Guard, command: str, **changes: Any) -> Outcome:
    task_ = task(command, **changes)
    return await run_shell(task_, guard, Stop(), Live(), environ=WORKERS_OWN)


def text(outcome: Outcome) -> str:
    assert outcome.output is not None
    return outcome.output.text


def living(marker: str) -> list[int]:
    """The processes with this among their arguments, but for those that have ended and wait to be reaped."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _has(entry, marker)]


def _has(entry: Path, marker: str) -> bool:
    try:
        return marker.encode() in (entry / "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False


async def eventually(condition: Callable[[], object], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 # no event tells of processes that are not ours
            await asyncio.sleep(0.01)


# How it ended


async def test_exit_code_0_is_success(guard: Guard) -> None:
    outcome = await run(guard, "echo done")
    assert (outcome.status, outcome.exit_code, outcome.error) == (Status.SUCCEEDED, 0, None)
    assert (outcome.reason, text(outcome)) == (None, "done\n")


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        ("exit 3", 3, "exited with code 3"),
        ("exit 255", 255, "exited with code 255"),
        ("no-such-command", 127, "exited with code 127"),
        ("kill -KILL $$", 137, "killed by SIGKILL (signal 9)"),
        ("kill -SEGV $$", 139, "killed by SIGSEGV (signal 11)"),
        ("kill -40 $$", 168, "killed by signal 40"),
    ],
)
async def test_any_other_end_is_a_failure_with_one_sentence(guard: Guard, command: str, code: int, error: str) -> None:
    outcome = await run(guard, command)
    assert (outcome.status, outcome.exit_code, outcome.error) == (Status.FAILED, code, error)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"args": {"argv": ["/no/such"]}}, "launch failed: /no/such (or the interpreter it asks for) was not found"),
        ({"working_dir": "/no/folder"}, "launch failed: the folder /no/folder does not exist"),
        ({"env": {"A": "b\0c"}}, "launch failed: the command or its environment contains a NUL character"),
        ({"env_from": ("NOT_THERE",)}, "launch failed: env_from: the worker has no environment variable NOT_THERE"),
        ({"env_from": ("PGPASSWORD",)}, "launch failed: env_from: PGPASSWORD is the worker's own and is not passed on"),
        ({"env_from": ("PGCRON_DSN",)}, "launch failed: env_from: PGCRON_DSN is the worker's own and is not passed on"),
        (
            {"args": {"argv": "ls"}},
            'launch failed: args.argv must be a list of strings, for example ["/bin/echo", "hello"]',
        ),
        (
            {"args": {"argv": []}},
            'launch failed: args.argv must be a list of strings, for example ["/bin/echo", "hello"]',
        ),
        (
            {"args": {"argv": ["ls", 1]}},
            'launch failed: args.argv must be a list of strings, for example ["/bin/echo", "hello"]',
        ),
    ],
)
async def test_what_cannot_be_started_fails_with_a_plain_error(
    guard: Guard, changes: dict[str, Any], error: str
) -> None:
    outcome = await run(guard, "echo never", **changes)
    assert (outcome.status, outcome.exit_code, outcome.error) == (Status.FAILED, None, error)


# What runs

QUOTING = [
    "date +%Y-%m-%d",
    'printf \'%s\\n\' "a b" \'c"d\' "$HOME"',
    "echo one\necho two\n",
    "echo trailing \\",
    "  # only a comment",
    "echo $((1+2)) `echo back` \"$(printf '%%d')\"; echo ünï 😀",
    "echo \\u0000 %(name)s {braces} $1 $0",
    "cat <<'END'\n$not %expanded\nEND",
    "printf 'a\\tb\\rc'",
    "",
    "exit 4",
    "-x",
    "syntax error (",
]


@pytest.mark.parametrize("command", QUOTING)
async def test_the_text_reaches_the_shell_unchanged(guard: Guard, command: str) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/home/worker"}
    direct = await asyncio.to_thread(
        subprocess.run, ["/bin/sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
    )
    outcome = await run(guard, command)
    assert (text(outcome).encode(), outcome.exit_code) == (direct.stdout, direct.returncode)


async def test_an_argument_list_needs_no_shell(guard: Guard) -> None:
    items = ["a b", 'c"d', "$HOME", "%d", "-n", "", "new\nline", "back\\", "😀"]
    show = "import sys; print(sys.argv[1:])"
    outcome = await run(guard, "a label", args={"argv": [sys.executable, "-I", "-S", "-c", show, *items]})
    assert text(outcome) == f"{items}\n"


async def test_a_command_of_100_kb_runs_and_one_of_200_kb_fails_alone_and_clearly(guard: Guard) -> None:
    outcome = await run(guard, "echo ok #" + "x" * 100_000)
    assert text(outcome) == "ok\n"
    outcome = await run(guard, "echo ok #" + "x" * 200_000)
    if outcome.status is Status.FAILED:
        assert outcome.error is not None
        assert outcome.error.startswith("launch failed: the command (200,018 bytes) or its environment is longer")
    assert text(await run(guard, "echo next")) == "next\n"


async def test_the_environment_is_small_and_clean(guard: Guard) -> None:
    outcome = await run(guard, "env", env={"A": "1", "HOME": "/mine"}, env_from=("TOKEN",))
    variables = dict(line.split("=", 1) for line in text(outcome).splitlines())
    assert {
        "A": "1",
        "HOME": "/mine",
        "LC_TIME": "C",
        "PATH": os.environ["PATH"],
        "TOKEN": "t0ken",
        "PGCRON_JOB": "nightly",
        "PGCRON_RUN_ID": "77",
        "PGCRON_ATTEMPT": "2",
        "PGCRON_SCHEDULED_FOR": "2026-03-01T18:00:00Z",
    }.items() <= variables.items()
    assert "s3cr3t" not in text(outcome)
    allowed = {"A", "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PWD", "SHELL", "SHLVL", "TMPDIR", "TOKEN"}
    allowed |= {"TZ", "USER", "_", "OLDPWD"}
    assert not {name for name in variables if not name.startswith(("PGCRON_", "LC_"))} - allowed


async def test_a_job_cannot_pose_as_another(guard: Guard) -> None:
    outcome = await run(guard, "echo $PGCRON_JOB", env={"PGCRON_JOB": "other"})
    assert text(outcome) == "nightly\n"


async def test_the_scheduled_instant_is_given_in_utc(guard: Guard) -> None:
    instant = datetime(2026, 3, 1, 18, 0, 0, 250_000, tzinfo=UTC)
    outcome = await run(guard, "echo $PGCRON_SCHEDULED_FOR", scheduled_for=instant)
    assert text(outcome) == "2026-03-01T18:00:00.250000Z\n"


async def test_the_folder_is_the_jobs(guard: Guard, tmp_path: Path) -> None:
    assert text(await run(guard, "pwd", working_dir=str(tmp_path))) == f"{tmp_path}\n"


# Output


@pytest.mark.parametrize("exit_code", [0, 3])
async def test_bytes_that_are_no_text_close_the_run_all_the_same(guard: Guard, exit_code: int) -> None:
    outcome = await run(guard, f"printf 'a\\0b\\377c'; printf '\\\\u0000' >&2; exit {exit_code}")
    assert (text(outcome), outcome.exit_code) == ("a␀b\\xffc\\u0000", exit_code)


async def test_only_head_and_tail_of_long_output_are_kept(guard: Guard) -> None:
    outcome = await run(guard, "echo first; seq 1 200000; echo last", output_limit_kb=1)
    assert outcome.output is not None
    assert outcome.output.truncated
    assert outcome.output.total_bytes == 6 + 1_288_895 + 5
    assert text(outcome).startswith("first\n1\n2\n")
    assert "\n… 1,287,882 bytes left out …\n" in text(outcome)
    assert text(outcome).endswith("200000\nlast\n")


# What is left behind


@ON_LINUX
@pytest.mark.parametrize(
    "command",
    [
        "sleep 600 {0} & echo started",
        "(setsid sh -c '(sleep 600 {0} &)' &); echo started",
        "sleep 600 {0} >/dev/null 2>&1 & echo started",
    ],
)
async def test_a_background_process_does_not_hold_the_run_and_is_killed(
    guard: Guard, marker: str, command: str
) -> None:
    async with asyncio.timeout(5):
        outcome = await run(guard, command.format(marker))
    assert (outcome.status, outcome.exit_code, text(outcome)) == (Status.SUCCEEDED, 0, "started\n")
    assert outcome.reason == "left processes running in the background; they were killed"
    assert not living(marker)


async def test_what_a_background_process_prints_soon_after_the_end_is_kept(guard: Guard) -> None:
    outcome = await run(guard, "(sleep 0.3; echo late) & echo early")
    assert (text(outcome), outcome.reason) == ("early\nlate\n", None)


# Stopping


async def stop_when_up(
    guard: Guard, marker: str, command: str, *, grace: float, now: bool = False, wait: float = 0.0
) -> tuple[Outcome, float]:
    """The outcome, and the seconds from the stop to the end."""
    stop = Stop()
    to_run = task(command.format(marker), kill_grace=timedelta(seconds=grace))
    running = asyncio.create_task(run_shell(to_run, guard, stop, Live(), environ=WORKERS_OWN))
    await eventually(lambda: living(marker))
    await asyncio.sleep(wait)
    started = time.monotonic()
    stop.request(StopReason.CANCEL, now=now)
    return await running, time.monotonic() - started


@ON_LINUX
async def test_a_stop_is_told_to_the_command_which_may_tidy_up(guard: Guard, marker: str) -> None:
    command = "trap 'sleep 0.2; echo bye; exit 9' TERM; echo hello; sleep 600 {0} & wait"
    outcome, _ = await stop_when_up(guard, marker, command, grace=10)
    assert (outcome.status, outcome.exit_code, text(outcome)) == (Status.FAILED, 9, "hello\nbye\n")
    assert outcome.error == "exited with code 9"
    assert not living(marker)


@ON_LINUX
async def test_what_the_shell_was_running_may_tidy_up_though_the_shell_is_dead(
    guard: Guard, marker: str, tmp_path: Path
) -> None:
    script = tmp_path / "tidy"
    script.write_text("trap 'sleep 0.3; echo tidied; exit 0' TERM; sleep 600 $1 & wait\n")
    outcome, _ = await stop_when_up(guard, marker, f"sh {script} {{0}}; true", grace=10, wait=0.1)
    assert (outcome.exit_code, outcome.error) == (143, "killed by SIGTERM (signal 15)")
    assert text(outcome) == "tidied\n"


@ON_LINUX
@pytest.mark.parametrize(
    "command",
    [
        "trap '' TERM; echo hello; sleep 600 {0}; sleep 600 {0}",
        "echo hello; (trap '' TERM; sleep 600 {0}) & wait",
        "echo hello; setsid sh -c \"trap '' TERM; sleep 600 {0}; sleep 600 {0}\"",
    ],
)
async def test_who_ignores_term_is_killed_after_the_grace(guard: Guard, marker: str, command: str) -> None:
    outcome, seconds = await stop_when_up(guard, marker, command, grace=0.5)
    assert outcome.status is Status.FAILED
    assert text(outcome) == "hello\n"
    assert 0.5 <= seconds < 2.5
    assert not living(marker)


@ON_LINUX
async def test_a_stopped_command_dies_like_any_other(guard: Guard, marker: str) -> None:
    command = "sleep 600 {0} & sleep 0.1; kill -STOP $! $$"
    outcome, seconds = await stop_when_up(guard, marker, command, grace=10, wait=0.2)
    assert outcome.exit_code == 128 + signal.SIGTERM
    assert seconds < 5
    assert not living(marker)


@ON_LINUX
async def test_the_grace_is_skipped_at_once_and_also_later(guard: Guard, marker: str) -> None:
    command = "trap '' TERM; sleep 600 {0}; sleep 600 {0}"
    outcome, seconds = await stop_when_up(guard, marker, command, grace=60, now=True)
    assert (outcome.exit_code, outcome.error) == (137, "killed by SIGKILL (signal 9)")
    assert seconds < 5

    stop = Stop()
    to_run = task(command.format(marker), kill_grace=timedelta(seconds=60))
    running = asyncio.create_task(run_shell(to_run, guard, stop, Live()))
    await eventually(lambda: living(marker))
    stop.request(StopReason.CANCEL)
    await asyncio.sleep(0.05)
    stop.request(StopReason.CANCEL, now=True)
    async with asyncio.timeout(5):
        assert (await running).exit_code == 137
    assert not living(marker)


async def test_a_run_that_is_stopped_before_it_starts_never_starts(guard: Guard, tmp_path: Path) -> None:
    stop = Stop()
    stop.request(StopReason.CANCEL)
    outcome = await run_shell(task(f"touch {tmp_path}/ran"), guard, stop, Live())
    assert (outcome.status, outcome.error) == (Status.FAILED, "stopped before it was started")
    assert not (tmp_path / "ran").exists()


@ON_LINUX
async def test_cancelling_the_asyncio_task_kills_everything(guard: Guard, marker: str) -> None:
    running = asyncio.create_task(run(guard, f"(setsid sleep 600 {marker} &); trap '' TERM; sleep 600"))
    await eventually(lambda: living(marker))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: not living(marker))


@ON_LINUX
async def test_a_run_that_its_guard_cut_off_says_so(guard: Guard, marker: str) -> None:
    running = asyncio.create_task(run(guard, f"echo hello; sleep 600 {marker}"))
    await eventually(lambda: living(marker))
    guard.feed(boottime())
    outcome = await running
    assert outcome.status is Status.LOST
    assert outcome.reason == "killed by the guard: this worker could not renew its lease in time"
    assert (outcome.exit_code, text(outcome)) == (137, "hello\n")
    outcome = await run(guard, "echo next")
    assert outcome.error is not None
    assert outcome.error.startswith("launch failed: this worker could not renew its lease")


@ON_LINUX
@pytest.mark.faults
async def test_a_run_whose_guard_died_fails_and_so_does_the_next(guard: Guard, marker: str) -> None:
    running = asyncio.create_task(run(guard, f"echo hello; sleep 600 {marker}"))
    await eventually(lambda: living(marker))
    os.kill(guard.pid, signal.SIGKILL)
    outcome = await running
    assert (outcome.status, text(outcome)) == (Status.FAILED, "hello\n")
    assert outcome.error == "its guard process ended, and so it was killed"
    assert not living(marker)
    outcome = await run(guard, "echo next")
    assert outcome.error is not None
    assert outcome.error.startswith("launch failed: The guard process of this worker has ended")
