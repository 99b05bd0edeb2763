"""A terminal of a given width for one command."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

import pgcron_runner


def on_terminal(*arguments: str, columns: int, env: Mapping[str, str], keys: bytes = b"") -> str:
    """All that the command shows, colours included. `keys` are typed at once."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LD_LIBRARY_PATH")}
    package = str(Path(pgcron_runner.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "pgcron_runner", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=kept | {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": package} | dict(env),
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, keys)
    shown = bytearray()
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)
    process.wait(10)
    return shown.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError as error:
        # Linux says so when the last program has left the terminal.
        if error.errno == errno.EIO:
            return b""
        raise


def without_colours(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", shown)
