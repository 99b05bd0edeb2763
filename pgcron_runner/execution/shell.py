"""Runs commands for jobs: what is run, as whom, where and in which environment. It must not know the database."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC
from typing import Protocol

from pgcron_runner.errors import GuardLost, PgcronError
from pgcron_runner.execution.accounts import Account, BadAccountError, find_account
from pgcron_runner.execution.following import failed, follow
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.output import OutputBuffer
from pgcron_runner.execution.processes import Command, Guard, LaunchError, Process
from pgcron_runner.execution.steps import step_files
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import Outcome, Task

# What programs expect to find, and nothing that could hold a secret of the worker's.
_BASE = ("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# libpq's variables and ours: the worker's way into the database is no job's business.
_PRIVATE = "PG"


class BadCommandError(PgcronError):
    """The command cannot be built from this job."""


class Launcher(Protocol):
    """What starts commands: the guard, or who goes another way to the same end."""

    async def launch(self, command: Command, output: OutputBuffer) -> Process:
        """As Guard.launch."""


async def run_shell(
    task: Task,
    guard: Guard,
    stop: Stop,
    live: Live,
    *,
    environ: Mapping[str, str] = os.environ,
) -> Outcome:
    """Run `task.command` with `/bin/sh -c`, or the list `task.args["argv"]` without a shell.

    `args.run_as` and `args.umask` are the command's user and file mode mask, by default the worker's. `environ` is the
    worker's environment, the source of `task.env_from`. For the rest see `run_command`.
    """
    try:
        account = await account_of(task)
        with step_files(task, live, guard.scratch, owner=account.owner) as files:
            command = Command(
                _argv(task),
                build_environment(task, environ, account) | files.environment,
                task.working_dir,
                umask=umask_of(task),
                user=account.ids,
            )
            return files.finish(await run_command(command, task, guard, stop, live))
    except (BadCommandError, BadAccountError, OSError) as error:
        return failed(f"launch failed: {error}")


async def run_command(command: Command, task: Task, launcher: Launcher, stop: Stop, live: Live) -> Outcome:
    """Run one command to its end and tell how it ended; a failure of any kind is an outcome, never raised.

    For `stop` see `follow`. The outcome is then FAILED, with what the command made of it, for the caller to put its own
    status in place; a command that had ended by itself before is told as it ended. What it prints is in `live` too.
    """
    if stop.reason is not None:
        return failed("stopped before it was started")
    output = live.output = OutputBuffer(task.output_limit_kb * 1024)
    if task.memory_limit_mb is not None:
        command = replace(command, memory_limit=task.memory_limit_mb << 20)
    try:
        process = await launcher.launch(command, output)
    except (LaunchError, GuardLost) as error:
        return failed(f"launch failed: {error}")
    return await follow(process, task, stop)


def build_environment(task: Task, environ: Mapping[str, str], account: Account | None = None) -> dict[str, str]:
    """The whole environment of a job's command; later ones win: base, account, `env`, `env_from`, the run's own."""
    for name in task.env_from:
        if name.startswith(_PRIVATE):
            raise BadCommandError(f"env_from: {name} is the worker's own and is not passed on")
        if name not in environ:
            raise BadCommandError(f"env_from: the worker has no environment variable {name}")
    return {
        **base_environment(environ),
        **(account.environment if account is not None else {}),
        **task.env,
        **{name: environ[name] for name in task.env_from},
        "PGCRON_JOB": task.job_name,
        "PGCRON_RUN_ID": str(task.run_id),
        "PGCRON_ATTEMPT": str(task.attempt),
        "PGCRON_SCHEDULED_FOR": task.scheduled_for.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What every command finds, of the worker's own environment."""
    taken = {name: environ[name] for name in environ if name in _BASE or name.startswith("LC_")}
    return {"PATH": _DEFAULT_PATH, **taken}


def _argv(task: Task) -> tuple[str, ...]:
    argv = task.args.get("argv")
    if argv is None:
        return ("/bin/sh", "-c", task.command)
    if not isinstance(argv, list) or not argv or not all(isinstance(item, str) for item in argv):
        raise BadCommandError('args.argv must be a list of strings, for example ["/bin/echo", "hello"]')
    return tuple(argv)


def umask_of(task: Task) -> int | None:
    """`args.umask`; None: the worker's. Raises BadCommandError."""
    umask = task.args.get("umask")
    if umask is None:
        return None
    if not isinstance(umask, str) or not re.fullmatch("0?[0-7]{3}", umask):
        raise BadCommandError(f'args.umask must be three octal digits in a string, for example "027"; it is {umask!r}')
    return int(umask, 8)


async def account_of(task: Task) -> Account:
    """Who `args.run_as` is. Raises BadAccountError."""
    run_as = task.args.get("run_as")
    # The users of a directory service may be seconds away.
    return Account() if run_as is None else await asyncio.to_thread(find_account, run_as)
