"""`pgcron-runner channel`: what is secret stays so; and `channel test` with a real worker and a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.support.databases import Database
from tests.support.listeners import hook
from tests.support.workers import WorkerProcess

TOKEN = "s3cr3t-1-token"


def test_a_channel_is_made_listed_and_taken_away(cli: Cli, database: Database) -> None:
    added = cli(
        "channel", "add", "ops", f"json://user:{TOKEN}@example.org/{TOKEN}", "--quiet-hours", "22:00-7:00",
        "--timezone", "Europe/Berlin", "--digest", "1h",
    )  # fmt: skip
    assert added.lines == ["Added channel ops (json://…@example.org/…). Try it: pgcron-runner channel test ops"]
    again = cli("channel", "add", "more", f"json://user:{TOKEN}@example.org/{TOKEN}")
    assert "ops goes to the same place" in again.err
    listed = cli("channel", "list")
    header, _, line = listed.lines
    assert header.split() == ["NAME", "TARGET", "ROUTES", "WAITING", "LAST", "TOLD", "QUIET", "DIGEST", "STATE"]
    assert " ".join(line.split()) == "ops json://…@example.org/… default 0 never 22:00-07:00 Europe/Berlin 1h ok"
    shown = cli("channel", "list", "--json")
    assert shown.json[1]["target"] == "json://…@example.org/…"
    assert shown.json[1]["digest_every"] == 3600.0
    for result in (added, again, listed, shown):
        assert TOKEN not in result.out + result.err
    assert cli("channel", "remove", "ops").lines == ["Removed channel ops."]
    assert "There is no channel named 'ops'" in cli("channel", "remove", "ops").err


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("env:OPS_URL", 0, "Note: here, there is no environment variable OPS_URL. The workers must have it."),
        ("file:/not/there", 0, "Note: here, the file /not/there cannot be read: No such file or directory."),
        ("env:not a name", 2, "does not name an environment variable"),
        ("file:relative", 2, "is not a whole path. For example: file:/run/secrets/ops-url"),
        (f"slakc://{TOKEN}", 2, "is not a scheme that Apprise or this program knows (did you mean slack://"),
        ("slack://", 2, "is not a URL"),
        (f"telegram{TOKEN}", 2, "is not a URL"),
        ("discord://x", 2, "lacks something that discord:// needs"),
        ("pagerduty:///", 2, "has no routing key"),
        ("webhook+https:///path", 2, "has no host"),
    ],
)
def test_what_cannot_be_a_target_is_told_when_it_is_saved(
    target: str, code: int, words: str, cli: Cli, database: Database
) -> None:
    added = cli("channel", "add", "ops", target)
    assert (added.code, words in added.err) == (code, True), added.err
    assert TOKEN not in added.err
    assert database.value("select count(*) from pgcron.channels") == (code == 0)


def test_what_a_reference_leads_to_here_is_looked_at_and_not_shown(
    cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPS_URL", f"nonsense://{TOKEN}")
    refused = cli("channel", "add", "ops", "env:OPS_URL")
    assert refused.code == 2
    assert "target: 'env:OPS_URL' leads here to what is not a scheme" in refused.err
    assert TOKEN not in refused.err
    monkeypatch.setenv("OPS_URL", f"json://{TOKEN}")
    assert cli("channel", "add", "ops", "env:OPS_URL").lines[0].startswith("Added channel ops (env:OPS_URL)")


def test_a_name_that_is_taken_and_hours_that_are_none_are_refused(cli: Cli, database: Database, tmp_path: Path) -> None:
    assert cli("channel", "add", "ops", "json://example.org").code == 0
    assert "'ops' is taken" in cli("channel", "add", "ops", "json://example.org").err
    for options, words in (
        (
            ["--quiet-hours", "22-7"],
            "quiet-hours: '22-7' is not a pair of times. For example: --quiet-hours 22:00-07:00",
        ),
        (["--quiet-hours", "22:00-27:00", "--timezone", "UTC"], "names a time that does not exist"),
        (["--quiet-hours", "22:00-07:00"], "quiet hours need a zone"),
        (["--timezone", "EST"], "timezone"),
        (["--digest", "1"], "digest: '1' has no unit"),
        (["--template", "/not/there"], "template: '/not/there' cannot be read"),
    ):
        refused = cli("channel", "add", "new", "json://example.org", *options)
        assert (refused.code, words in refused.err) == (2, True), refused.err
    template = tmp_path / "alert.j2"
    template.write_text("{{ job")
    assert "is no template" in cli("channel", "add", "new", "json://example.org", "--template", str(template)).err


@pytest.mark.slow
def test_a_test_message_is_sent_by_a_worker(cli: Cli, database: Database, tmp_path: Path) -> None:
    with hook() as server, WorkerProcess(database.dsn, folder=tmp_path):
        assert cli("channel", "add", "ops", f"webhook+http://{server.address}/{TOKEN}").code == 0
        sent = cli("channel", "test", "ops")
        assert (sent.code, sent.lines) == (0, ["ops has taken it."])
        assert server.posted[0].json["title"] == "pgcron-runner: test"
        assert cli("channel", "add", "bad", f"webhook+http://127.0.0.1:1/{TOKEN}").code == 0
        refused = cli("channel", "test", "bad")
        assert refused.code == 1
        assert "bad has not taken it: ConnectionError" in refused.out
        assert TOKEN not in refused.out
    assert "There is no channel named 'gone'" in cli("channel", "test", "gone").err
