"""Runs commands for jobs: their environment, their end, and the story of it. It must not know the database.

The run is over when the command itself has ended and its output is complete. What it left in the background
may hold the output for two seconds more and is then killed, wherever it hid; the outcome's reason says so.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from datetime import UTC

from pgcron_runner.errors import GuardLost, PgcronError
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.output import OutputBuffer, storable
from pgcron_runner.execution.processes import Command, ExitStatus, Guard, LaunchError, Process
from pgcron_runner.execution.steps import step_files
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Outcome, Output, Status, Task

_DRAIN = 2.0
_LAST_BREATH = 0.1
_LEFT_OVER = "left processes running in the background; they were killed"
_CUT_OFF = "killed by the guard: this worker could not renew its lease in time"
# What programs expect to find, and nothing that could hold a secret of the worker's.
_BASE = ("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# libpq's variables and ours: the worker's way into the database is no job's business.
_PRIVATE = "PG"


class BadCommandError(PgcronError):
    """The command cannot be built from this job."""


async def run_shell(
    task: Task,
    guard: Guard,
    stop: Stop,
    live: Live,
    *,
    environ: Mapping[str, str] = os.environ,
) -> Outcome:
    """Run `task.command` with `/bin/sh -c`, or the list `task.args["argv"]` without a shell.

    `environ` is the worker's environment, the source of `task.env_from`. For the rest see `run_command`.
    """
    try:
        with step_files(task, live) as files:
            environment = build_environment(task, environ) | files.environment
            command = Command(_argv(task), environment, task.working_dir)
            return files.finish(await run_command(command, task, guard, stop, live))
    except (BadCommandError, OSError) as error:
        return _failed(f"launch failed: {error}")


async def run_command(command: Command, task: Task, guard: Guard, stop: Stop, live: Live) -> Outcome:
    """Run one command to its end and tell how it ended; a failure of any kind is an outcome, never raised.

    `stop` ends it from outside: TERM to its process group, then, after `task.kill_grace` or as soon as the stop
    is urgent, KILL to all that it started. The outcome is then FAILED, with what the command made of it,
    for the caller to put its own status in place; a command that had ended by itself before is told as it ended.
    If the asyncio task itself is cancelled, everything is killed without waiting. What it prints is in `live` too.
    """
    if stop.reason is not None:
        return _failed("stopped before it was started")
    output = live.output = OutputBuffer(task.output_limit_kb * 1024)
    try:
        process = await guard.launch(command, output)
    except (LaunchError, GuardLost) as error:
        return _failed(f"launch failed: {error}")
    try:
        return await _follow(process, task, stop.event, stop.now)
    finally:
        # Costs nothing when all is over; on cancellation it is all that is left to do.
        process.request_kill()
        process.close()


def build_environment(task: Task, environ: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a job's command; later ones win: base, `env`, `env_from`, the run's own."""
    taken = {name: environ[name] for name in environ if name in _BASE or name.startswith("LC_")}
    for name in task.env_from:
        if name.startswith(_PRIVATE):
            raise BadCommandError(f"env_from: {name} is the worker's own and is not passed on")
        if name not in environ:
            raise BadCommandError(f"env_from: the worker has no environment variable {name}")
    return {
        "PATH": _DEFAULT_PATH,
        **taken,
        **task.env,
        **{name: environ[name] for name in task.env_from},
        "PGCRON_JOB": task.job_name,
        "PGCRON_RUN_ID": str(task.run_id),
        "PGCRON_ATTEMPT": str(task.attempt),
        "PGCRON_SCHEDULED_FOR": task.scheduled_for.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }


def _argv(task: Task) -> tuple[str, ...]:
    argv = task.args.get("argv")
    if argv is None:
        return ("/bin/sh", "-c", task.command)
    if not isinstance(argv, list) or not argv or not all(isinstance(item, str) for item in argv):
        raise BadCommandError('args.argv must be a list of strings, for example ["/bin/echo", "hello"]')
    return tuple(argv)


async def _follow(process: Process, task: Task, stop: asyncio.Event, stop_now: asyncio.Event) -> Outcome:
    await _first_of(process.exited, stop, stop_now)
    stopped = not process.exited.is_set()
    if stopped:
        await _terminate(process, task.kill_grace.total_seconds(), stop_now)
    else:
        await _first_of(process.gone, process.drained, stop, stop_now, seconds=_DRAIN)
    left_over = await _kill_leftovers(process)
    if process.gone.is_set():
        # All writers are dead, so the end of the output is there, unless a stranger was given the pipe.
        await _first_of(process.drained, seconds=_DRAIN)
    return _outcome_of(process, stopped=stopped, left_over=left_over and not stopped)


async def _kill_leftovers(process: Process) -> bool:
    """True if there were any."""
    # One that ends lets go of its output a moment before it is gone.
    await _first_of(process.gone, seconds=_LAST_BREATH)
    if process.gone.is_set():
        return False
    await process.kill_tree()
    return True


async def _terminate(process: Process, grace: float, stop_now: asyncio.Event) -> None:
    """TERM, and time for the whole tree: a shell dies of it at once, what it was running may tidy up."""
    if not stop_now.is_set():
        process.signal_group(signal.SIGTERM)
        await _first_of(process.gone, stop_now, seconds=grace)
    await process.kill_tree()


async def _first_of(*events: asyncio.Event, seconds: float | None = None) -> None:
    """Wait until one of them is set, or that long."""
    if any(event.is_set() for event in events):
        return
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _outcome_of(process: Process, *, stopped: bool, left_over: bool) -> Outcome:
    output = process.output.render()
    if process.status is None:
        lost = "its guard process ended, and so it was killed"
        return _failed(lost if process.exited.is_set() else "it lives on after SIGKILL", output)
    code, error = _tell_end(process.status)
    if process.status.cut_off:
        # The worker did not say so itself: it was stopped or hung, and others may have the run by now.
        return Outcome(Status.LOST, exit_code=code, error=error, reason=_CUT_OFF, output=output)
    reason = _LEFT_OVER if left_over else None
    if code == 0 and not stopped:
        return Outcome(Status.SUCCEEDED, exit_code=code, reason=reason, output=output)
    return Outcome(Status.FAILED, exit_code=code, error=error, reason=reason, output=output)


def _tell_end(status: ExitStatus) -> tuple[int, str]:
    """The exit code as shells give it, and the sentence for it."""
    if status.signal is None:
        code = status.code or 0
        return code, f"exited with code {code}"
    try:
        name = f"{signal.Signals(status.signal).name} (signal {status.signal})"
    except ValueError:  # real-time signals have no names of their own
        name = f"signal {status.signal}"
    return 128 + status.signal, f"killed by {name}"


def _failed(error: str, output: Output | None = None) -> Outcome:
    return Outcome(Status.FAILED, error=storable(error), output=output)
