"""`pgcron-runner chain add|list|remove`."""

from __future__ import annotations

from tests.cli.conftest import Cli
from tests.statements.builders import add_job
from tests.support.databases import Database


def test_a_chain_is_made_changed_listed_and_taken_away(cli: Cli, database: Database) -> None:
    for name in ("import", "report"):
        add_job(database, name)
    assert cli("chain", "add", "import", "report").lines == ["From now on report runs after import has succeeded."]
    assert cli("chain", "add", "import", "report", "--on", "failed", "--delay", "5m").lines == [
        "Changed: report runs 5m after import has failed, with no attempts left."
    ]
    [shown] = cli("chain", "list", "--json").json
    assert shown == {"after": "import", "on": "failed", "run": "report", "delay": 300.0}
    assert "report runs 5m after import has failed, with no attempts left." in cli("job", "show", "report").lines
    assert cli("job", "show", "import", "--json").json["chains"][0]["downstream"] == "report"
    header, line = cli("chain", "list", "import").lines
    assert header.split() == ["AFTER", "HAS", "RUN", "DELAY"]
    assert line.split() == ["import", "failed,", "with", "no", "attempts", "left", "report", "5m"]
    assert cli("chain", "remove", "import", "report").lines == ["report no longer runs after import."]
    assert cli("chain", "list", "--json").json == []


def test_what_is_not_there_is_named(cli: Cli, database: Database) -> None:
    add_job(database, "import")
    for arguments in (("add", "import", "gone"), ("add", "gone", "import"), ("list", "gone")):
        refused = cli("chain", *arguments)
        assert refused.code == 1
        assert "There is no job named 'gone'. See: pgcron-runner job list" in refused.err
    refused = cli("chain", "remove", "import", "gone")
    assert refused.code == 1
    assert "'gone' does not run after 'import'. See: pgcron-runner chain list" in refused.err


def test_wrong_use_is_told_in_words(cli: Cli, database: Database) -> None:
    for name in ("a", "b"):
        add_job(database, name)
    refused = cli("chain", "add", "a", "b", "--delay", "5")
    assert refused.code == 2
    assert "delay: '5' has no unit" in refused.err
    assert cli("chain", "add", "a", "b").code == 0
    refused = cli("chain", "add", "b", "a")
    assert refused.code in (1, 2)
    assert "'b' would come after itself" in refused.err
