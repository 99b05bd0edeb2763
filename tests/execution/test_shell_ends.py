"""How commands of jobs are stopped, and what becomes of what they leave behind."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from pgcron_runner.clock import boottime
from pgcron_runner.execution.processes import Guard
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Status, StopReason
from tests.execution.escapes import living
from tests.execution.guarded import ON_LINUX, eventually
from tests.execution.shell_runs import run, stop_when_up, text

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
    assert seconds >= 0.5
    assert not living(marker)


@ON_LINUX
async def test_a_stopped_command_dies_like_any_other(guard: Guard, marker: str) -> None:
    command = "sleep 600 {0} & sleep 0.1; kill -STOP $! $$"
    outcome, _ = await stop_when_up(guard, marker, command, grace=600, wait=0.2)
    assert outcome.exit_code == 128 + signal.SIGTERM
    assert not living(marker)


@ON_LINUX
async def test_the_grace_is_skipped_at_once_and_also_later(guard: Guard, marker: str) -> None:
    command = "trap '' TERM; sleep 600 {0}; sleep 600 {0}"
    outcome, _ = await stop_when_up(guard, marker, command, grace=600, now=True)
    assert (outcome.exit_code, outcome.error) == (137, "killed by SIGKILL (signal 9)")

    stop = Stop()
    running = asyncio.create_task(run(guard, command.format(marker), stop=stop, kill_grace=timedelta(seconds=600)))
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
    outcome = await run(guard, f"touch {tmp_path}/ran", stop=stop)
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
