"""Starting a command: found on its own PATH, in a session of its own, with nothing of the guard's but its folder."""

from __future__ import annotations

import errno
import os
import signal

# Those the guard ignores and those Python does; an ignored signal would stay ignored in every command.
IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_RESET = (*IGNORED, signal.SIGPIPE, signal.SIGXFSZ)


def spawn(argv: list[bytes], env: dict[bytes, bytes], output: int) -> int:
    """Start a program in a session of its own; every other file of the guard closes on exec."""
    return os.posix_spawn(
        _find_program(argv[0], env.get(b"PATH", os.defpath.encode())),
        argv,
        env,
        file_actions=[(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)],
        setsid=True,
        setsigmask=(),
        setsigdef=_RESET,
    )


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
