"""What the worker asks its guard to run, how that ended, and why it could not be started. Values and words."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from pgcron_runner.errors import PgcronError
from pgcron_runner.execution.guard import wire
from pgcron_runner.execution.guard.orders import Order


class LaunchError(PgcronError):
    """The command could not be started."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its whole environment.

    Folder, umask and user are the worker's where nothing is said. `user` is a user id, a group id and further group
    ids. `memory_limit` is in bytes and for all that the command starts.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None = None
    umask: int | None = None
    user: tuple[int, ...] = ()
    memory_limit: int | None = None


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a command ended: its exit code, or the signal. `cut_off`: it ran when the deadline passed."""

    code: int | None
    signal: int | None = None
    cut_off: bool = False


def launch_frame(number: int, command: Command) -> bytes:
    """The guard's order to start it. Raises LaunchError for what no operating system can start."""
    variables = [f"{name}={value}" for name, value in command.env.items()]
    if wrong := [name for name in command.env if "=" in name or not name]:
        raise LaunchError(f"{wrong[0]!r} cannot be the name of an environment variable")
    texts = [command.cwd or "", *command.argv, *variables]
    if any("\0" in text for text in texts):
        raise LaunchError("the command or its environment contains a NUL character")
    try:
        # Not os.fsencode: what a command is must not depend on the worker's locale.
        folder, *rest = [text.encode("utf-8", "surrogateescape") for text in texts]
    except UnicodeEncodeError as error:
        raise LaunchError("the command or its environment contains half a surrogate pair") from error
    count = len(command.argv)
    order = Order(
        number,
        rest[:count],
        rest[count:],
        folder=folder,
        umask=command.umask,
        user=command.user,
        memory_limit=command.memory_limit or 0,
    )
    return wire.pack(b"launch", *order.fields())


def launch_error(step: bytes, code: int, command: Command) -> LaunchError:
    """The guard's `failed` in words."""
    name = command.argv[0]
    match step, code:
        case b"deadline", _:
            return LaunchError("this worker could not renew its lease in time, so its guard starts nothing")
        case b"folder", errno.ENOENT:
            return LaunchError(f"the folder {command.cwd} does not exist")
        case b"folder", _:
            return LaunchError(f"the folder {command.cwd} cannot be entered: {os.strerror(code)}")
        case _, errno.EPERM if command.user:
            return LaunchError(f"this worker may not start a command as user {command.user[0]}")
        case _, errno.ENOENT:
            return LaunchError(f"{name} (or the interpreter it asks for) was not found")
        case _, errno.EACCES:
            return LaunchError(f"{name} may not be executed by this user, or is not executable")
        case _, errno.ENOEXEC:
            return LaunchError(f"{name} is not a program; a script needs a first line like #!/bin/sh")
        case _, errno.E2BIG:
            size = sum(len(text.encode("utf-8", "replace")) for text in command.argv)
            return LaunchError(
                f"the command ({size:,} bytes) or its environment is longer than the operating system takes"
                " (Linux: 131,071 bytes in one piece); put it into a file"
            )
    return LaunchError(f"{name} could not be started: {os.strerror(code)}")
