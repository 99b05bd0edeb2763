"""Channels and routes that are written by hand: what is wrong is told at once, in words that never quote a target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgcron_runner.embedded import Server
from tests.support.databases import Database, new_database

_SECRET = "T0KEN-of-ops"
_TARGET = (
    "Such as slack://TOKEN_A/TOKEN_B/TOKEN_C, pagerduty://ROUTING_KEY, or a place where the workers find one: "
    "env:OPS_URL, file:/run/secrets/ops-url."
)
_WEB = "For JSON of our own put webhook+ in front, such as webhook+https://example.org/hook."
_IANA = "An IANA name, such as Europe/Berlin or UTC."
_EVENTS = "Of: failed, timed_out, lost, launch_failed, invalid, late, missed, long, recovered."


@pytest.fixture(scope="module")
def shared(server: Server, migrated_template: str) -> Iterator[Database]:
    with new_database(server, template=migrated_template) as database:
        yield database


@pytest.fixture
def database(shared: Database) -> Database:
    shared.execute("truncate pgcron.channels restart identity cascade")
    return shared


def _write(database: Database, how: str, table: str, whole: dict[str, Any], changed: dict[str, Any]) -> None:
    """Inserts the row so changed; or inserts it as it is, and changes it then."""
    row = whole | changed if how == "insert" else whole
    values = ", ".join(f"%({name})s" for name in row)
    database.execute(f"insert into pgcron.{table} ({', '.join(row)}) values ({values})", row)
    if how == "update":
        database.execute(f"update pgcron.{table} set {', '.join(f'{name} = %({name})s' for name in changed)}", changed)


@pytest.mark.parametrize(
    ("changed", "message", "hint"),
    [
        ({"target": ""}, "target: it is empty", _TARGET),
        ({"target": " \n"}, "target: it is empty", _TARGET),
        ({"target": None}, "target: it is empty", _TARGET),
        ({"target": _SECRET}, "target: it is not a URL", _TARGET),
        ({"target": f"slack:/{_SECRET}"}, "target: it is not a URL", _TARGET),
        ({"target": "slack://"}, "target: it is not a URL", _TARGET),
        ({"target": "env:"}, "target: after env: there is no name of an environment variable", _TARGET),
        ({"target": f"env:{_SECRET}"}, "target: after env: there is no name of an environment variable", _TARGET),
        ({"target": "file:ops-url"}, "target: after file: there is no whole path", _TARGET),
        ({"target": f"https://example.org/{_SECRET}"}, "target: it is a web address", _WEB),
        ({"target": "webhook+https:///hook"}, "target: it has no host", _TARGET),
        (
            {"target": f"pagerduty://key@{_SECRET}/x"},
            "target: after pagerduty:// there is not just one routing key",
            _TARGET,
        ),
        (
            {"target": f"pagerduty://key/{_SECRET}"},
            "target: after pagerduty:// there is not just one routing key",
            _TARGET,
        ),
        (
            {"name": "two words"},
            "name: 'two words' is not a name of a channel",
            "1 to 63 of letters, digits and _ . : -, such as ops.",
        ),
        ({"timezone": "CET+1"}, "timezone: 'CET+1' is not a known time zone", _IANA),
        (
            {"quiet_from": "22:00"},
            "quiet_from, quiet_until: only one of them is given",
            "Both, such as '22:00' and '07:00', or none.",
        ),
        ({"quiet_from": "22:00", "quiet_until": "07:00"}, "timezone: quiet hours need a zone", _IANA),
        (
            {"digest_every": "-1 minute"},
            "digest_every: '-00:01:00' is not a pause",
            "Such as '15 minutes'; null for a message each.",
        ),
        (
            {"muted_until": "infinity"},
            "muted_until: 'infinity' is not an instant",
            "Such as now() + interval '1 hour'. For good: enabled = false.",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
@pytest.mark.parametrize("how", ["insert", "update"])
def test_what_is_wrong_with_a_channel_is_told_without_its_target(
    how: str, changed: dict[str, Any], message: str, hint: str, database: Database
) -> None:
    with pytest.raises((psycopg.IntegrityError, psycopg.DataError)) as caught:
        _write(database, how, "channels", {"name": "ops", "target": f"json://{_SECRET}@127.0.0.1"}, changed)
    diag = caught.value.diag
    assert (diag.message_primary, diag.message_hint) == (message, hint)
    assert diag.column_name == message.split(":")[0].split(",")[0]
    assert not any(
        _SECRET in str(part) for part in (diag.message_primary, diag.message_detail, diag.message_hint, diag.context)
    )


@pytest.mark.parametrize(
    "target",
    [
        "env:OPS_URL",
        " env:OPS_URL\n",
        "file:/run/secrets/ops url",
        "slack://A/B/C",
        "mailtos://user:p%40ss@smtp.example.org?from=a@b.org",
        "pagerduty://KEY",
        "pagerduty://KEY/?region=eu",
        "PagerDuty://KEY?url=https://another.example.org/v2/enqueue",
        "webhook+https://example.org/hook?secret=env:HOOK",
        "webhook+http://[::1]:8080",
        "json://127.0.0.1",
    ],
)
def test_what_the_workers_can_use_is_taken_by_sql_too(target: str, database: Database) -> None:
    database.execute("insert into pgcron.channels (name, target) values ('ops', %s)", (target,))
    assert database.rows("select name, target from pgcron.channels") == [("ops", target)]


@pytest.mark.parametrize(
    ("changed", "message", "hint"),
    [
        ({"events": ["failed", "fails"]}, "events: 'fails' is none of them", _EVENTS),
        ({"events": [None]}, "events: null is none of them", _EVENTS),
        ({"events": []}, "events: there is none, so nobody would be told", _EVENTS),
        (
            {"job_pattern": " "},
            "job_pattern: it is empty",
            "Names of jobs with * for any text, such as billing-*, or * for all.",
        ),
    ],
)
@pytest.mark.parametrize("how", ["insert", "update"])
def test_what_is_wrong_with_a_route_is_told(
    how: str, changed: dict[str, Any], message: str, hint: str, database: Database
) -> None:
    database.execute("insert into pgcron.channels (name, target) values ('ops', 'env:OPS_URL')")
    with pytest.raises(psycopg.IntegrityError) as caught:
        _write(database, how, "routes", {"channel_id": 1}, changed)
    diag = caught.value.diag
    assert (diag.message_primary, diag.message_hint, diag.column_name) == (message, hint, message.split(":")[0])


def test_a_channel_of_before_these_checks_can_still_be_muted_and_disabled(database: Database) -> None:
    database.execute("alter table pgcron.channels disable trigger check_channel")
    database.execute("insert into pgcron.channels (name, target) values ('old', 'nonsense')")
    database.execute("alter table pgcron.channels enable trigger check_channel")
    database.execute("update pgcron.channels set enabled = false, muted_until = '2099-01-01Z'")
    assert database.rows("select enabled, muted_until is null from pgcron.channels") == [(False, False)]
