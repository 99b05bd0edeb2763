"""What Tab offers: commands, options, and names out of the database, if it is there and quick."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from pgcron_runner.cli.app import run
from tests.statements.builders import add_job
from tests.support.databases import Database

Tab = Callable[..., list[str]]


@pytest.fixture
def tab(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tab:
    """A line of bash; the last word is what Tab is pressed in."""

    def press(*words: str) -> list[str]:
        monkeypatch.setenv("_PGCRON_RUNNER_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(("pgcron-runner", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit):
            run([])
        captured = capsys.readouterr()
        assert captured.err == ""
        return [word for word in captured.out.splitlines() if word]

    return press


def test_commands_and_options_are_offered(tab: Tab) -> None:
    assert tab("stat") == ["status"]
    assert tab("queue", "") == ["list", "pause", "resume", "limit"]
    assert "--json" in tab("job", "list", "--j")


def test_jobs_and_queues_are_offered_by_their_names(
    tab: Tab, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCRON_DSN", database.dsn)
    for name, queue in (("backup", "mail"), ("balance", "slow"), ("clean", "mail"), ("ba%_", "mail")):
        add_job(database, name, queue=queue)
    assert tab("job", "show", "ba") == ["ba%_", "backup", "balance"]
    assert tab("runs", "list", "c") == ["clean"]
    assert tab("queue", "pause", "") == ["default", "mail", "slow"]


def test_the_database_of_the_line_is_asked(tab: Tab, database: Database) -> None:
    add_job(database, "backup")
    assert tab("job", "show", "--dsn", f"'{database.dsn}'", "b") == ["backup"]


def test_no_database_means_no_names_and_no_words(tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    for dsn in ("postgresql:///x?host=/nonexistent", "not a dsn"):
        monkeypatch.setenv("PGCRON_DSN", dsn)
        assert tab("job", "show", "b") == []


@pytest.mark.timeout(30)
def test_a_database_that_does_not_answer_is_soon_given_up(tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setenv("PGCRON_DSN", f"postgresql://u@127.0.0.1:{deaf.getsockname()[1]}/x?connect_timeout=600")
        assert tab("job", "show", "b") == []


def test_zones_are_offered(tab: Tab) -> None:
    assert tab("next", "--timezone", "Europe/Berl") == ["Europe/Berlin"]
