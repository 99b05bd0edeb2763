"""Messages on their way: real sender processes, real HTTP and SMTP servers, and channels that misbehave."""

from __future__ import annotations

import asyncio
import email
import email.policy
import hashlib
import hmac
import os
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner.model import Alert, Channel, Delivery
from pgcron_runner.notify import Notifier
from tests.support.listeners import Hook, Mailbox, answering, hook, mailbox
from tests.support.waiting import eventually_async

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOKEN = "s3cr3t-1-token"
FACTS: dict[str, Any] = {
    "job": "backup",
    "timezone": "Europe/Berlin",
    "host": "db-1",
    "run": 4711,
    "scheduled_for": "2026-03-01T02:00:00+00:00",
    "started_at": "2026-03-01T02:00:00.5+00:00",
    "finished_at": "2026-03-01T02:00:09+00:00",
    "attempt": 3,
    "max_attempts": 3,
    "exit_code": 2,
    "error": "exited with code 2",
    "output": "copying\nno space left",
    "failures": 1,
    "incident": 12,
    "since": "2026-03-01T02:00:09+00:00",
    "next_run_at": "2026-03-02T02:00:00+00:00",
    "queue": "default",
}


def alert(event: str = "failed", number: int = 1, **facts: Any) -> Alert:
    return Alert(number, event, "backup", "pgcron/here/12", FACTS | facts, NOW, 1)


def channel(target: str, number: int = 1, **columns: Any) -> Channel:
    return Channel(number, "ops", target, **columns)


@pytest.fixture
def server() -> Iterator[Hook]:
    with hook() as made:
        yield made


@pytest.fixture
def mails() -> Iterator[Mailbox]:
    with mailbox() as made:
        yield made


@pytest.fixture
async def notifier() -> AsyncIterator[Notifier]:
    notifier = Notifier(environ=os.environ | {"OPS_URL": ""}, deadline=15)
    yield notifier
    await notifier.close()


# ---------------------------------------------------------------------------------------------- our own senders


async def test_a_pager_opens_acknowledges_and_resolves_one_incident(notifier: Notifier, server: Hook) -> None:
    target = f"pagerduty://{TOKEN}?url=http://{server.address}/v2/enqueue"
    for event, number in (("failed", 1), ("acknowledged", 2), ("recovered", 3)):
        assert await notifier.send(channel(target), [alert(event, number)]) == Delivery(sent=True)
    opened, acknowledged, resolved = [posted.json for posted in server.posted]
    text = opened["payload"].pop("custom_details")["text"]
    assert opened == {
        "routing_key": TOKEN,
        "event_action": "trigger",
        "dedup_key": "pgcron/here/12",
        "payload": {
            "summary": "backup failed on db-1",
            "source": "db-1",
            "severity": "error",
            "component": "backup",
            "group": "default",
            "class": "failed",
            "timestamp": "2026-03-01T02:00:09+00:00",
        },
    }
    assert "no space left" in text
    for later, action in ((acknowledged, "acknowledge"), (resolved, "resolve")):
        assert later == {"routing_key": TOKEN, "event_action": action, "dedup_key": "pgcron/here/12"}
    assert server.posted[0].path == "/v2/enqueue"


async def test_a_pager_gets_an_event_for_each_alert_of_a_digest(notifier: Notifier, server: Hook) -> None:
    target = f"pagerduty://{TOKEN}?url=http://{server.address}/"
    alerts = [Alert(n, "failed", f"job-{n}", f"pgcron/here/{n}", FACTS | {"job": f"job-{n}"}, NOW, 1) for n in range(5)]
    assert (await notifier.send(channel(target), alerts)).sent
    assert [posted.json["dedup_key"] for posted in server.posted] == [f"pgcron/here/{n}" for n in range(5)]


async def test_a_webhook_is_signed_and_can_be_told_from_its_repetition(notifier: Notifier, server: Hook) -> None:
    target = f"webhook+http://{server.address}/hook?a=b&secret={TOKEN}"
    for _ in range(2):
        assert (await notifier.send(channel(target), [alert(redact=["x"])])).sent
    assert (await notifier.send(channel(target), [alert(number=2)])).sent
    first, again, other = server.posted
    assert first.path == "/hook?a=b"
    signature = dict(pair.split("=") for pair in first.headers["X-Pgcron-Signature"].split(","))
    mac = hmac.new(TOKEN.encode(), signature["t"].encode() + b"." + first.body, hashlib.sha256)
    assert signature["v1"] == mac.hexdigest()
    assert abs(int(signature["t"]) - time.time()) < 60
    assert first.headers["Content-Type"] == "application/json"
    assert first.json["id"] == first.headers["Idempotency-Key"] == again.headers["Idempotency-Key"]
    assert other.headers["Idempotency-Key"] != first.headers["Idempotency-Key"]
    assert first.json["title"] == "backup failed on db-1"
    assert first.json["alerts"] == [FACTS | {"event": "failed", "incident_key": "pgcron/here/12"}]


async def test_what_a_service_answers_is_told_with_when_it_wants_the_next(notifier: Notifier, server: Hook) -> None:
    server.answer = answering(429, Retry_After="17")
    delivery = await notifier.send(channel(f"webhook+http://{server.address}/"), [alert()])
    assert delivery == Delivery(sent=False, error="it answered 429 Too Many Requests: words", retry_after=17.0)
    server.answer = answering(302, Location=f"http://{server.address}/elsewhere")
    delivery = await notifier.send(channel(f"webhook+http://{server.address}/"), [alert()])
    assert (delivery.sent, len(server.posted)) == (False, 2)


# ------------------------------------------------------------------------------------------------- by Apprise


async def test_what_apprise_knows_goes_through_it(notifier: Notifier, server: Hook) -> None:
    assert await notifier.send(channel(f"json://{server.address}/hook"), [alert()]) == Delivery(sent=True)
    posted = server.posted[0].json
    assert posted["title"] == "backup failed on db-1"
    assert posted["message"].splitlines() == [
        "Was due: 2026-03-01 03:00:00+0100 (2026-03-01 02:00:00Z)",
        "Started: 2026-03-01 03:00:00+0100 (2026-03-01 02:00:00Z)",
        "Ended: 2026-03-01 03:00:09+0100 (2026-03-01 02:00:09Z)",
        "Attempt: 3 of 3",
        "Exit code: 2",
        "Error: exited with code 2",
        "Since: 2026-03-01 03:00:09+0100 (2026-03-01 02:00:09Z)",
        "Next time: 2026-03-02 03:00:00+0100 (2026-03-02 02:00:00Z)",
        "",
        "  | copying",
        "  | no space left",
        "More: pgcron-runner runs show 4711",
    ]


async def test_mail_is_mail(notifier: Notifier, mails: Mailbox) -> None:
    target = f"mailto://127.0.0.1:{mails.port}?from=cron@example.org&to=ops@example.org&mode=insecure&format=text"
    assert await notifier.send(channel(target), [alert()]) == Delivery(sent=True)
    mail = email.message_from_string(mails.mails[0], policy=email.policy.default)
    assert mail["Subject"] == "backup failed on db-1"
    body = mail.get_body(("plain",))
    assert body is not None
    assert "no space left" in body.get_content()


async def test_a_service_that_refuses_is_told(notifier: Notifier, server: Hook) -> None:
    server.answer = answering(500)
    delivery = await notifier.send(channel(f"json://{server.address}/"), [alert()])
    assert not delivery.sent
    assert delivery.error is not None
    assert "500" in delivery.error
    assert not delivery.permanent


async def test_what_nobody_understands_is_given_up(notifier: Notifier) -> None:
    delivery = await notifier.send(channel("nonsense://x"), [alert()])
    assert delivery == Delivery(sent=False, error="Apprise does not understand this target", permanent=True)


# --------------------------------------------------------------------------------------------------- references


async def test_a_reference_is_followed_by_the_worker(server: Hook, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(f"webhook+http://{server.address}/file\n")
    notifier = Notifier(environ=os.environ | {"OPS_URL": f"webhook+http://{server.address}/env"})
    try:
        for target in ("env:OPS_URL", f"file:{file}"):
            assert (await notifier.send(channel(target), [alert()])).sent
        assert [posted.path for posted in server.posted] == ["/env", "/file"]
        delivery = await notifier.send(channel("env:NOT_THERE"), [alert()])
        assert delivery == Delivery(sent=False, error="this worker has no environment variable NOT_THERE")
        delivery = await notifier.send(channel("file:/not/there"), [alert()])
        assert delivery.error == "the file /not/there cannot be read: No such file or directory"
    finally:
        await notifier.close()


# --------------------------------------------------------------------------------------- channels that misbehave


@pytest.mark.parametrize("how", ["hang", "drip"])
async def test_a_channel_that_never_answers_is_cut_off_and_delays_no_other(how: str, server: Hook) -> None:
    server.answer = getattr(server, how)
    notifier = Notifier(deadline=8, processes=2)
    with hook() as good:
        try:
            bad = asyncio.ensure_future(notifier.send(channel(f"webhook+http://{server.address}/"), [alert()]))

            async def is_asked() -> bool:
                return bool(server.posted)

            await eventually_async(is_asked)
            for number in range(3):
                delivery = await notifier.send(channel(f"webhook+http://{good.address}/", 2), [alert(number=number)])
                assert delivery.sent
            assert not bad.done()
            assert await bad == Delivery(sent=False, error="no answer within 8 s; the sender was killed")
            # The next message has a sender again.
            server.answer = None
            assert (await notifier.send(channel(f"json://{server.address}/"), [alert()])).sent
        finally:
            await notifier.close()


async def test_closing_cuts_off_what_is_on_its_way(server: Hook) -> None:
    server.answer = server.hang
    notifier = Notifier(deadline=60)
    sending = asyncio.ensure_future(notifier.send(channel(f"json://{server.address}/"), [alert()]))

    async def is_asked() -> bool:
        return bool(server.posted)

    await eventually_async(is_asked)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    async with asyncio.timeout(5):
        await notifier.close()


async def test_a_sender_that_was_killed_is_replaced(notifier: Notifier, server: Hook) -> None:
    target = channel(f"webhook+http://{server.address}/")
    assert (await notifier.send(target, [alert()])).sent
    [sender] = notifier._idle
    sender._process.kill()
    delivery = await notifier.send(target, [alert(number=2)])
    assert delivery.error is not None
    assert delivery.error.startswith("the sender process ended")
    assert (await notifier.send(target, [alert(number=2)])).sent


# -------------------------------------------------------------------------------------------------------- secrets


async def test_no_secret_is_in_an_error_an_argument_or_an_environment(notifier: Notifier, server: Hook) -> None:
    server.answer = answering(500)
    for target in (
        f"json://user:{TOKEN}@127.0.0.1:1/{TOKEN}",
        f"webhook+http://127.0.0.1:1/{TOKEN}?secret={TOKEN}",
        f"webhook+http://{server.address}/{TOKEN}",
        f"pagerduty://{TOKEN}?url=http://127.0.0.1:1/{TOKEN}",
        f"slack://{TOKEN}",
    ):
        delivery = await notifier.send(channel(target), [alert()])
        assert not delivery.sent
        assert delivery.error is not None
        assert TOKEN not in delivery.error, target
    for sender in notifier._idle:
        for name in ("cmdline", "environ"):
            text = Path(f"/proc/{sender._process.pid}/{name}").read_bytes()  # noqa: ASYNC240 # not a real file
            assert TOKEN.encode() not in text


# ------------------------------------------------------------------------------------------------------- templates


async def test_a_channel_may_have_its_own_text_and_a_broken_one_loses_nothing(notifier: Notifier, server: Hook) -> None:
    url = f"json://{server.address}/"
    own = "title: {{ job | upper }}\nrun {{ run }} at {{ scheduled_for | when(timezone) }}"
    assert (await notifier.send(channel(url, template=own), [alert()])).sent
    assert (await notifier.send(channel(url, template="{{ job.__class__.__mro__ }}"), [alert()])).sent
    first, second = [posted.json for posted in server.posted]
    assert first["title"] == "BACKUP"
    assert first["message"] == "run 4711 at 2026-03-01 03:00:00+0100 (2026-03-01 02:00:00Z)"
    assert second["title"] == "backup failed on db-1"
    assert "the channel's template failed: SecurityError" in second["message"]
