"""PagerDuty and plain webhooks: what is posted, to the letter, and what the answers mean."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner import __version__
from pgcron_runner.model import Alert, Delivery
from pgcron_runner.notify import Notifier
from pgcron_runner.notify.markup import PLAIN
from pgcron_runner.notify.pagerduty import endpoint_of, send_to_pagerduty
from pgcron_runner.notify.posting import poster
from pgcron_runner.notify.sender import send
from pgcron_runner.notify.webhook import body_of, sign
from pgcron_runner.notify.writing import Writer
from tests.notify.facts import FACTS, KEY, NOW, TOKEN, alert, channel, facts
from tests.support.listeners import Hook, answering, hook


@pytest.fixture
def server() -> Iterator[Hook]:
    with hook() as made:
        yield made


def deliver(target: str, *alerts: Alert, environ: dict[str, str] | None = None, **columns: Any) -> Delivery:
    """Sends it in this very process, as a sender process would."""
    notifier = Notifier(environ=environ or {}, deadline=20)
    return send(notifier._request(channel(target, **columns), alerts or [alert()]))


def pager(server: Hook) -> str:
    return f"pagerduty://{TOKEN}?url=http://{server.address}/v2/enqueue"


def many(number: int) -> list[Alert]:
    return [
        Alert(n, "failed", f"job-{n}", f"pgcron/here/{n}", FACTS | {"job": f"job-{n}"}, NOW, 1) for n in range(number)
    ]


# ------------------------------------------------------------------------------------------------------- PagerDuty


def test_a_pager_opens_acknowledges_and_resolves_one_incident(server: Hook) -> None:
    for event, number in (("failed", 1), ("acknowledged", 2), ("recovered", 3)):
        assert deliver(pager(server), alert(event, number, tags=["db"])) == Delivery(sent=True)
    opened, acknowledged, resolved = [posted.json for posted in server.posted]
    assert opened == {
        "routing_key": TOKEN,
        "event_action": "trigger",
        "dedup_key": KEY,
        "client": "pgcron-runner",
        "payload": {
            "summary": "backup failed on db-1",
            "source": "db-1",
            "severity": "error",
            "component": "backup",
            "group": "default",
            "class": "failed",
            "timestamp": "2026-03-01T02:00:09+00:00",
            "custom_details": {
                "error": "exited with code 2",
                "exit_code": 2,
                "output": "copying\nno space left",
                "attempt": 3,
                "max_attempts": 3,
                "failures": 1,
                "since": "2026-03-01T02:00:09+00:00",
                "scheduled_for": "2026-03-01T02:00:00+00:00",
                "started_at": "2026-03-01T02:00:00.5+00:00",
                "finished_at": "2026-03-01T02:00:09+00:00",
                "next_run_at": "2026-03-02T02:00:00+00:00",
                "kind": "shell",
                "tags": ["db"],
                "owner": "ops",
                "run": 4711,
                "worker": "w1",
                "more": "pgcron-runner runs show 4711; pgcron-runner runs logs 4711",
            },
        },
    }
    for later, action in ((acknowledged, "acknowledge"), (resolved, "resolve")):
        assert later == {"routing_key": TOKEN, "event_action": action, "dedup_key": KEY}
    assert {posted.path for posted in server.posted} == {"/v2/enqueue"}


@pytest.mark.parametrize(("event", "severity"), [("lost", "error"), ("late", "warning"), ("long", "warning")])
def test_how_bad_it_is_depends_on_the_event(event: str, severity: str, server: Hook) -> None:
    assert deliver(pager(server), alert(event)).sent
    assert server.posted[0].json["payload"]["severity"] == severity


def test_a_test_leaves_nothing_open_at_the_pager(server: Hook) -> None:
    assert deliver(pager(server), alert("test")).sent
    opened, closed = [posted.json for posted in server.posted]
    assert (opened["event_action"], opened["payload"]["severity"]) == ("trigger", "info")
    assert (closed["event_action"], closed["dedup_key"]) == ("resolve", opened["dedup_key"])


def test_a_pager_gets_an_event_for_each_alert_of_a_digest(server: Hook) -> None:
    assert deliver(pager(server), *many(5)).sent
    assert [posted.json["dedup_key"] for posted in server.posted] == [f"pgcron/here/{n}" for n in range(5)]


def refuse(server: Hook, refused: set[str], status: int = 400, **headers: str) -> None:
    def answer(number: int, handler: BaseHTTPRequestHandler) -> None:
        bad = server.posted[number - 1].json["dedup_key"].rpartition("/")[2] in refused
        answering(status if bad else 202, b"words", **(headers if bad else {}))(number, handler)

    server.answer = answer


def test_one_alert_that_is_refused_keeps_no_other_from_the_pager(server: Hook) -> None:
    refuse(server, {"2"})
    delivery = deliver(pager(server), *many(5))
    assert delivery == Delivery(sent=False, error="it answered 400 Bad Request: words", taken=2)
    assert len(server.posted) == 5


def test_a_pager_that_refuses_everything_is_not_asked_for_ever(server: Hook) -> None:
    server.answer = answering(403)
    delivery = deliver(pager(server), *many(50))
    assert (delivery.sent, delivery.taken, len(server.posted)) == (False, 0, 3)


def test_a_pager_that_wants_a_pause_gets_it(server: Hook) -> None:
    refuse(server, {"3"}, 429, Retry_After="60")
    delivery = deliver(pager(server), *many(9))
    error = "it answered 429 Too Many Requests: words"
    assert delivery == Delivery(sent=False, error=error, retry_after=60.0, taken=3)
    assert len(server.posted) == 4


def test_more_than_the_time_allows_goes_with_the_next_message(server: Hook) -> None:
    ticks = count(0.0, 2.0)
    delivery = send_to_pagerduty(
        pager(server), [facts(id=n) for n in range(50)], Writer(), 20.0, clock=lambda: next(ticks)
    )
    assert delivery == Delivery(sent=False, error="it took 6 of 50 in time; the rest follows", taken=6)
    assert len(server.posted) == 6


def test_a_pager_shows_what_its_template_says_and_no_secrets(server: Hook) -> None:
    assert deliver(
        pager(server),
        alert(redact=["no space"], error=f"with {TOKEN}"),
        template="title: {{ job }}!\nlook at {{ run }}",
    ).sent
    payload = server.posted[0].json["payload"]
    assert payload["summary"] == "backup!"
    assert payload["custom_details"]["text"] == "look at 4711"
    assert payload["custom_details"]["output"] == "copying\n*** left"
    assert payload["custom_details"]["error"] == "with ***"


@pytest.mark.parametrize(
    ("query", "endpoint"),
    [
        ("", "https://events.pagerduty.com/v2/enqueue"),
        ("?region=EU", "https://events.eu.pagerduty.com/v2/enqueue"),
        ("?url=https%3A%2F%2Fexample.org%2Fx", "https://example.org/x"),
    ],
)
def test_where_a_pager_is(query: str, endpoint: str) -> None:
    assert endpoint_of(f"pagerduty://{TOKEN}{query}") == endpoint


# -------------------------------------------------------------------------------------------------------- webhooks


def test_a_webhook_says_all_and_can_be_told_from_its_repetition(server: Hook) -> None:
    for number, installation in ((1, "here"), (1, "here"), (2, "here"), (1, "there")):
        made = Alert(number, "failed", "backup", f"pgcron/{installation}/12", FACTS | {"redact": ["space"]}, NOW, 1)
        assert deliver(f"webhook+http://{server.address}/hook?a=b%20c", made).sent
    first, again, other, elsewhere = server.posted
    assert first.path == "/hook?a=b%20c"
    assert first.headers["Content-Type"] == "application/json"
    assert first.headers["User-Agent"] == f"pgcron-runner/{__version__}"
    assert "X-Pgcron-Signature" not in first.headers
    assert first.json["id"] == first.headers["Idempotency-Key"] == again.headers["Idempotency-Key"]
    keys = {posted.headers["Idempotency-Key"] for posted in (first, other, elsewhere)}
    assert len(keys) == 3
    text = first.json.pop("text")
    assert "no *** left" in text
    sent_at = datetime.fromisoformat(first.json["sent_at"])
    assert sent_at.tzinfo is not None
    alerts = first.json["alerts"]
    assert alerts == [
        FACTS
        | {"output": "copying\nno *** left", "id": 1, "event": "failed", "incident_key": KEY}
        | {"created_at": "2026-03-01T02:00:09+00:00"}
    ]


def test_the_body_of_a_webhook_names_a_single_alert_at_its_top() -> None:
    message = Writer().write([facts()], PLAIN)
    now = datetime(2026, 3, 1, 3, tzinfo=UTC)
    body = body_of("key", [facts()], message, now)
    assert {name: body[name] for name in ("id", "event", "job", "incident_key", "sent_at", "title")} == {
        "id": "key",
        "event": "failed",
        "job": "backup",
        "incident_key": KEY,
        "sent_at": "2026-03-01T03:00:00+00:00",
        "title": "backup failed on db-1",
    }
    digest = body_of("key", [facts(), facts("late")], Writer().write([facts(), facts("late")], PLAIN), now)
    assert (digest["event"], digest["job"], len(digest["alerts"])) == ("digest", None, 2)


def test_a_webhook_is_signed_with_what_its_reference_leads_to(server: Hook) -> None:
    assert deliver(f"webhook+http://{server.address}/?secret=env:HOOK", environ={"HOOK": TOKEN}).sent
    [posted] = server.posted
    signature = dict(pair.split("=") for pair in posted.headers["X-Pgcron-Signature"].split(","))
    mac = hmac.new(TOKEN.encode(), signature["t"].encode() + b"." + posted.body, hashlib.sha256)
    assert signature["v1"] == mac.hexdigest()
    assert signature["t"] == str(int(datetime.fromisoformat(posted.json["sent_at"]).timestamp()))
    assert posted.path == "/"


def test_a_signature_is_what_the_protocol_says() -> None:
    expected = "t=1,v1=" + hmac.new(b"key", b'1.{"a":1}', hashlib.sha256).hexdigest()
    assert sign(b'{"a":1}', "key", 1) == expected


def test_a_webhook_may_have_a_user_and_gets_nothing_from_a_netrc(
    server: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert deliver(f"webhook+http://{server.address}/").sent
    assert deliver(f"webhook+http://user:p%40ss@{server.address}/").sent
    assert [posted.headers.get("Authorization") for posted in server.posted] == [None, "Basic dXNlcjpwQHNz"]


# --------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("headers", "retry_after"),
    [
        ({"Retry_After": "17"}, 17.0),
        ({"Retry_After": "Sun, 01 Mar 2026 12:01:00 GMT", "Date": "Sun, 01 Mar 2026 12:00:00 GMT"}, 60.0),
        ({"Retry_After": "Sun, 01 Mar 2026 11:00:00 GMT", "Date": "Sun, 01 Mar 2026 12:00:00 GMT"}, 0.0),
        ({"Retry_After": "soon"}, None),
        ({"Retry_After": "-5"}, None),
        ({}, None),
    ],
)
def test_a_service_may_say_when_it_wants_the_next(
    headers: dict[str, str], retry_after: float | None, server: Hook
) -> None:
    def answer(number: int, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response_only(429)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.answer = answer
    delivery = deliver(f"webhook+http://{server.address}/")
    assert delivery == Delivery(sent=False, error="it answered 429 Too Many Requests", retry_after=retry_after)


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 404, 410, 500, 503])
def test_what_is_not_taken_is_tried_again_since_it_may_be_mended(status: int, server: Hook) -> None:
    server.answer = answering(status, Location=f"http://{server.address}/elsewhere")
    delivery = deliver(f"webhook+http://{server.address}/")
    assert (delivery.sent, delivery.permanent, len(server.posted)) == (False, False, 1)
    assert delivery.error is not None
    assert delivery.error.startswith(f"it answered {status} ")


def test_of_an_answer_no_more_is_read_than_a_few_words(server: Hook) -> None:
    def answer(number: int, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(500)
        handler.end_headers()
        for _ in range(1_000):
            handler.wfile.write(b"x" * 10_000)

    server.answer = answer
    with poster(5) as connection:
        delivery = connection.post(f"http://{server.address}/", b"", {})
    assert delivery.error == "it answered 500 Internal Server Error: " + "x" * 300
