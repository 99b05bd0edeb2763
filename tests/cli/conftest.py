"""The command line as its users meet it: in this process for most tests, on a terminal of its own for some."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pgcron_runner.cli.app import run
from tests.support.databases import Database


@dataclass(frozen=True)
class Result:
    """What a command left: its exit code and both outputs."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code in (0, 1), self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Cli = Callable[..., Result]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not said in a test is not said."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    # A place without a server, so that a command which should not connect fails if it does.
    monkeypatch.setenv("PGHOST", "/nonexistent")


@pytest.fixture
def offline(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Commands without a database."""

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def cli(offline: Cli, database: Database, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commands on the test's database."""
    monkeypatch.setenv("PGCRON_DSN", database.dsn)
    return offline
