"""Starting a command: found on its own PATH, in a session of its own, with nothing of the guard's but its folder."""

from __future__ import annotations

import errno
import os
import signal

from .orders import Order

# Python ignores these, and an ignored signal would stay ignored in every command.
RESET = (signal.SIGPIPE, signal.SIGXFSZ)


def spawn(order: Order, output: int, procs: int | None = None) -> int:
    """Start a program in a session of its own; every other file of the guard closes on exec. Raises OSError.

    `procs` is an open cgroup.procs: the command begins its life in that cgroup.
    """
    env = dict(_split(variable) for variable in order.env)
    program = _find_program(order.argv[0], env.get(b"PATH", os.defpath.encode()))
    before = None if order.umask is None else os.umask(order.umask)
    try:
        if order.user or procs is not None:
            return _fork(program, order, env, output, procs)
        return os.posix_spawn(
            program,
            order.argv,
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)],
            setsid=True,
            setsigmask=(),
            setsigdef=RESET,
        )
    finally:
        if before is not None:
            os.umask(before)


def _fork(program: bytes, order: Order, env: dict[bytes, bytes], output: int, procs: int | None) -> int:
    """For what posix_spawn cannot do; it takes three times as long."""
    # Not needed by most guards, and a third of their start-up time.
    import subprocess

    user, group, *groups = order.user or (None, None)
    popen = subprocess.Popen(
        order.argv,
        executable=program,
        env=env,
        stdout=output,
        stderr=output,
        start_new_session=True,
        user=user,
        group=group,
        extra_groups=groups if order.user else None,
        # May be called: the guard has no threads. The permission to write is the opener's, whoever the child is by now.
        preexec_fn=None if procs is None else lambda: os.write(procs, b"0"),  # noqa: PLW1509
    )
    # The loop reaps it; subprocess must not try to.
    popen.returncode = 0
    return popen.pid


def _split(variable: bytes) -> tuple[bytes, bytes]:
    name, _, value = variable.partition(b"=")
    return name, value


def _find_program(program: bytes, search_path: bytes) -> bytes:
    """`program` as the command's own PATH has it, not as the guard's has."""
    if b"/" in program:
        return program
    found = [os.path.join(folder or b".", program) for folder in search_path.split(b":")]
    found = [path for path in found if os.path.isfile(path)]
    runnable = [path for path in found if os.access(path, os.X_OK)]
    if not runnable:
        code = errno.EACCES if found else errno.ENOENT
        raise OSError(code, os.strerror(code))
    return runnable[0]
