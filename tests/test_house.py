"""The rules of the house that a machine can check."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pgcron_runner import statements

ROOT = Path(__file__).resolve().parent.parent
QUERIES = sorted((ROOT / "sql" / "queries").glob("*.sql"))


def test_imports_go_downward_only() -> None:
    check = "from importlinter.cli import lint_imports_command as check; check()"
    done = subprocess.run(
        [sys.executable, "-c", check, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_every_statement_file_says_what_it_does_and_is_used(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.match(r"(--[^\n]+\n)+", text), "the file begins with a comment"
    callers = [module for module in (ROOT / "pgcron_runner").rglob("*.py") if f'"{path.stem}"' in module.read_text()]
    assert callers, "no module asks for it"


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_every_statement_names_its_tables_in_full(path: Path) -> None:
    tables = "jobs|runs|workers|queues|settings|chains|channels|routes|incidents|alerts|schema_migrations"
    code = re.sub(r"--[^\n]*", "", path.read_text(encoding="utf-8"))
    bare = re.findall(rf"\b(?:from|join|update|into|delete from)\s+(?:{tables})\b", code)
    assert bare == [], "a hostile search_path must find nothing to do"


def test_every_statement_is_in_the_protocol() -> None:
    protocol = (ROOT / "sql" / "README.md").read_text(encoding="utf-8")
    # The demo's own tables are no part of it, nor is what people only look at.
    missing = [path.stem for path in QUERIES if f"`{path.stem}`" not in protocol and "demo" not in path.stem]
    assert missing == []


def test_an_unknown_statement_is_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        statements.query("no_such_statement")


@pytest.mark.parametrize("migration", statements.migrations(), ids=lambda migration: migration.name)
def test_migrations_are_numbered_without_gaps(migration: statements.Migration) -> None:
    assert statements.migrations()[migration.version - 1] == migration
