"""This machine as a server meets it: its OS user, its environment, the folders that user can reach.

Root may not run Postgres, so for root every program here runs as another user; for anyone else, as that one.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict

from pgcron_runner.errors import EmbeddedPostgresError

# A socket's path may have 107 bytes on Linux and 103 on macOS.
_LONGEST_SOCKET_PATH = 99


class AsUser(TypedDict, total=False):
    """What to tell subprocess, so that a program runs as a certain user; nothing: as we are."""

    user: int
    group: int
    extra_groups: list[int]


def run(program: Path, arguments: Iterable[str], *, as_user: AsUser) -> str:
    """Run to the end; what it printed, or an error that shows the last lines of it."""
    done = subprocess.run(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env=environment(),
        check=False,
        **as_user,
    )
    output = str(done.stdout, errors="replace")
    if done.returncode:
        raise EmbeddedPostgresError(f"{program} failed:\n{last_lines(output)}")
    return output


def environment() -> dict[str, str]:
    """Ours without PG* (also our own secrets), and without locales that this machine may not have."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C"}


def last_lines(text: str, count: int = 20) -> str:
    return "\n".join(text.strip().splitlines()[-count:])


def is_root() -> bool:
    return os.geteuid() == 0


def server_user_name() -> str:
    """For sentences."""
    return f"the user {_server_user().pw_name}" if is_root() else "this user"


def as_server_user() -> AsUser:
    if not is_root():
        return {}
    user = _server_user()
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def as_owner_of(data: Path) -> AsUser:
    if not is_root():
        return {}
    owner = data.stat()
    return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}


def give_to_server_user(path: Path) -> None:
    if is_root():
        user = _server_user()
        os.chown(path, user.pw_uid, user.pw_gid)


def is_reachable(folder: Path) -> bool:
    """Whether the server's user can enter the folder; for root judged by the mode bits for everyone."""
    if not is_root():
        return True
    folder = folder.resolve()
    return all(step.stat().st_mode & stat.S_IXOTH for step in (folder, *folder.parents))


def make_folder(folder: Path) -> None:
    """Create it where it is missing; root's umask must not shut out the server's user."""
    if not folder.exists():
        folder.mkdir(parents=True)
        if is_root():
            folder.chmod(0o755)


def fits_socket(folder: Path) -> bool:
    return len(os.fsencode(folder / ".s.PGSQL.65535")) <= _LONGEST_SOCKET_PATH


def temporary_folders() -> list[Path]:
    """Where temporary things may go, best first, as far as the server's user can enter."""
    folders = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108 - for mkdtemp
    real = dict.fromkeys(folder.resolve() for folder in folders if folder.is_dir())
    return [folder for folder in real if is_reachable(folder)]


@contextmanager
def system_errors_in_words() -> Iterator[None]:
    """A refused folder, a full disk or a forbidden change of user is told as what it is: no server here."""
    try:
        yield
    except OSError as error:
        raise EmbeddedPostgresError(f"Postgres cannot be started on this machine: {error}") from error


def _server_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise EmbeddedPostgresError("Postgres refuses to run as root, and there is no user postgres or nobody.")
