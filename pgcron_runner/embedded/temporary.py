"""A server for the length of a `with` block. It leaves nothing behind, even if this process is killed."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pgcron_runner.embedded.datafolder import add_settings, create_data
from pgcron_runner.embedded.host import (
    fits_socket,
    give_to_server_user,
    system_errors_in_words,
    temporary_folders,
)
from pgcron_runner.embedded.programs import find_programs
from pgcron_runner.embedded.server import Server
from pgcron_runner.errors import EmbeddedPostgresError

_SOCKET_PORT = 5432


@contextmanager
def start_temporary(
    *,
    settings: Mapping[str, str] | None = None,
    listen: bool = False,
    bin_dir: Path | None = None,
    folder: Path | None = None,
) -> Iterator[Server]:
    """A new server, running; ended and removed when the block ends or this process dies.

    `settings` go to postgresql.conf. With `listen` it also has a free port of 127.0.0.1 and a password. The
    data lies in a new folder inside `folder` (by default where temporary files go).
    """
    with ExitStack() as stack:
        with system_errors_in_words():
            server = _started(stack, settings or {}, listen, bin_dir, folder)
        yield server


def _started(
    stack: ExitStack, settings: Mapping[str, str], listen: bool, bin_dir: Path | None, folder: Path | None
) -> Server:
    programs = find_programs(bin_dir)
    parents = temporary_folders()
    home = stack.enter_context(_new_folder([folder] if folder else parents))
    socket_dir = stack.enter_context(
        _new_folder([parent for parent in parents if fits_socket(parent / "pgcron-12345678")])
    )
    data, log = home / "data", home / "server.log"
    stack.enter_context(_removed_when_this_process_dies(data, home, socket_dir))
    password = secrets.token_urlsafe(24) if listen else None
    create_data(data, programs, password=password, sync=False)
    add_settings(data, settings)
    port = _free_port() if listen else _SOCKET_PORT
    server = Server(data, socket_dir, port, programs.bin_dir, log, password=password)
    # The quickest end: nobody will read this data again.
    stack.callback(server.stop, "immediate")
    server.start()
    return server


@contextmanager
def _new_folder(parents: list[Path]) -> Iterator[Path]:
    """A folder of the server's user, which no other user can enter; removed at the end."""
    for parent in parents:
        with suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix="pgcron-", dir=parent))
            break
    else:
        raise EmbeddedPostgresError(
            "No temporary folder can be made that the server can use. Set TMPDIR to a short path of one."
        )
    try:
        give_to_server_user(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_CLEANER = """
read -r never
if read -r pid < "$1/postmaster.pid"; then
  kill -QUIT "$pid"
  tries=0
  while kill -0 "$pid" && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -KILL "$pid"
fi
shift
rm -rf "$@"
"""


@contextmanager
def _removed_when_this_process_dies(data: Path, *folders: Path) -> Iterator[None]:
    """A shell waits for its pipe to close, which no way of dying can prevent, and then cleans up."""
    with subprocess.Popen(
        ["/bin/sh", "-c", _CLEANER, "pgcron-cleaner", data, *folders],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    ) as cleaner:
        try:
            yield
        finally:
            cleaner.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
