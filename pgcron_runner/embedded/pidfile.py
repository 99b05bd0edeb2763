"""Reads postmaster.pid: which process serves a data folder, where it listens, whether it is ready.

The lines: pid, data folder, start time, port, socket folder, listen address, shared memory, status.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_PORT, _SOCKET_DIR, _STATUS = 3, 4, 7


def running_pid(data: Path) -> int | None:
    """The postmaster's process id; None when there is none, also when a dead one left its file."""
    pid = _pid(data)
    return pid if pid and is_alive(pid) and _may_be_postgres(pid) else None


def status(data: Path) -> str:
    """'starting', 'ready', 'standby' or 'stopping'; '' when not known yet."""
    return _line(data, _STATUS)


def socket_address(data: Path) -> tuple[Path, int] | None:
    """The folder of its Unix socket and its port; None while it has not said."""
    folder, port = _line(data, _SOCKET_DIR), _line(data, _PORT)
    return (Path(folder), int(port)) if folder and port.isdigit() else None


def remove_foreign(data: Path) -> None:
    """Remove the file of a dead server whose pid another program has now.

    Postgres clears a stale file itself, except when the pid is alive and of the same user. In containers,
    where pids start low, that is common.
    """
    pid = _pid(data)
    if pid and is_alive(pid) and not _may_be_postgres(pid):
        (data / "postmaster.pid").unlink()


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and is our child is reaped first."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return not _proc(pid, "stat").rpartition(b")")[2].startswith(b" Z")


def _may_be_postgres(pid: int) -> bool:
    program = os.path.basename(_proc(pid, "cmdline").split(b"\0")[0])
    return not program or b"postgres" in program or b"postmaster" in program


def _proc(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:  # gone, or a system without /proc: then nothing is known
        return b""


def _pid(data: Path) -> int | None:
    line = _line(data, 0)
    return int(line) if line.isdigit() else None


def _line(data: Path, number: int) -> str:
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return ""
    return lines[number].strip() if number < len(lines) else ""
