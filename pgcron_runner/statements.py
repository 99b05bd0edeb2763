"""Finds the SQL that is shipped with this package and hands out its text. It knows no connection."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pgcron_runner.errors import PgcronError


def sql_folder() -> Path:
    """The folder with `queries/` and `migrations/`: inside an installed package, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "sql", package.parent / "sql"):
        if (folder / "queries").is_dir():
            return folder
    raise PgcronError(f"The SQL files of pgcron-runner are missing beside {package}. Install the package again.")


@cache
def query(name: str) -> bytes:
    """The text of `sql/queries/<name>.sql`, read once. Bytes, so that the driver need not encode it each time."""
    return (sql_folder() / "queries" / f"{name}.sql").read_bytes()


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file. `breaking` means that a program which does not know it must not run on the schema."""

    version: int
    name: str
    breaking: bool
    text: str


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations in their order. The first line of a file is `-- compatible` or `-- breaking`."""
    return tuple(_read(path) for path in sorted((sql_folder() / "migrations").glob("[0-9]*.sql")))


def _read(path: Path) -> Migration:
    text = path.read_text(encoding="utf-8")
    mark = text.partition("\n")[0].removeprefix("--").strip()
    if mark not in ("compatible", "breaking"):
        raise PgcronError(f"{path.name} does not begin with `-- compatible` or `-- breaking`.")
    number, _, name = path.stem.partition("_")
    return Migration(int(number), name, mark == "breaking", text)
