"""The server whose data stays: one folder of this user, created once, then started or found running."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs

from pgcron_runner.embedded import pidfile
from pgcron_runner.embedded.datafolder import create_data
from pgcron_runner.embedded.host import (
    fits_socket,
    give_to_server_user,
    is_reachable,
    is_root,
    make_folder,
    server_user_name,
    system_errors_in_words,
    temporary_folders,
)
from pgcron_runner.embedded.programs import Programs, find_programs
from pgcron_runner.embedded.server import Server
from pgcron_runner.errors import EmbeddedPostgresError

_SOCKET_PORT = 5432


def start_persistent(data: Path | None = None, *, bin_dir: Path | None = None) -> Server:
    """The running server of `data`, by default of a folder among this user's own (root: in /var/lib).

    Ending it is the caller's affair. Data of another major version than the programs' is refused.
    """
    programs = find_programs(bin_dir)
    data = Path(os.path.realpath((data or _default_data(programs)).expanduser()))
    with system_errors_in_words(), _alone_with(data):
        if not (data / "PG_VERSION").exists():
            _create(data, programs)
        server = Server(data, _socket_dir(data), _SOCKET_PORT, programs.bin_dir, data / "server.log")
        _refuse_other_version(server, programs)
        server.start()
    return _where_it_listens(server)


def _default_data(programs: Programs) -> Path:
    # In root's home the server's user could not reach it.
    home = Path("/var/lib/pgcron-runner") if is_root() else platformdirs.user_data_path("pgcron-runner")
    return home / f"postgres-{programs.version}"


@contextmanager
def _alone_with(data: Path) -> Iterator[None]:
    """Let one process at a time create or start this data."""
    make_folder(data.parent)
    with data.with_name(f"{data.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _create(data: Path, programs: Programs) -> None:
    """Create beside and rename, so that an interrupted start leaves no half-made data folder."""
    if data.exists() and any(data.iterdir()):
        raise EmbeddedPostgresError(f"{data} is not empty and holds no PostgreSQL data. Name another folder.")
    if not is_reachable(data.parent):
        raise EmbeddedPostgresError(
            f"For root the server runs as {server_user_name()}, who cannot reach {data.parent}. Name another folder."
        )
    building = Path(tempfile.mkdtemp(dir=data.parent, prefix=f"{data.name}-"))
    try:
        give_to_server_user(building)
        create_data(building / "data", programs, password=None, sync=True)
        (building / "data").rename(data)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _refuse_other_version(server: Server, programs: Programs) -> None:
    if server.version != programs.version:
        raise EmbeddedPostgresError(
            f"{server.data} holds data of PostgreSQL {server.version}, and the programs here are of version "
            f"{programs.version} ({programs.bin_dir}). Use another folder, or programs of the data's version."
        )


def _socket_dir(data: Path) -> Path:
    """The data folder, which only its owner can enter; where its path is too long, one named by its hash."""
    if fits_socket(data):
        return data
    name = f"pgcron-{hashlib.sha256(os.fsencode(data)).hexdigest()[:16]}"
    for folder in [parent / name for parent in temporary_folders() if fits_socket(parent / name)]:
        with suppress(OSError):
            if not folder.exists():
                folder.mkdir(mode=0o700)
                give_to_server_user(folder)
            if _is_private(folder, data.stat().st_uid):
                return folder
    raise EmbeddedPostgresError(f"The path {data} is too long for a Unix socket. Name another folder.")


def _is_private(folder: Path, owner: int) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == owner and not found.st_mode & 0o077


def _where_it_listens(server: Server) -> Server:
    """The same server at the address where it is found, since somebody may have started it otherwise."""
    socket_dir, port = pidfile.socket_address(server.data) or (server.socket_dir, server.port)
    return dataclasses.replace(server, socket_dir=socket_dir, port=port)
