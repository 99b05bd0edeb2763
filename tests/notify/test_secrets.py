"""One marker in all places where something secret may be, and then a look at everything that comes out."""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

import pytest

from pgcron_runner import tenure, watcher
from pgcron_runner.database import Database
from pgcron_runner.errors import InvalidInput
from pgcron_runner.model import Delivery
from pgcron_runner.notify import Notifier
from pgcron_runner.notify.sender import send
from pgcron_runner.notify.targets import check_target, describe_target
from pgcron_runner.settings import WorkerSettings
from tests.notify.facts import alert, channel
from tests.notify.test_sending import HOSTILE, was_asked
from tests.support.listeners import Hook, answering, hook

if TYPE_CHECKING:
    from pgcron_runner.execution.processes import Guard

# Looks like nothing else, and is long enough for any key.
MARK = "S3cr3tMark0123456789abcdef"


@pytest.fixture
def server() -> Iterator[Hook]:
    with hook() as made:
        made.answer = answering(500, f"no {MARK} here".encode())
        yield made


@pytest.fixture
async def notifier(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Notifier]:
    monkeypatch.syspath_prepend(HOSTILE)
    environ = {"PGPASSWORD": MARK, "PGCRON_DSN": f"postgresql://u:{MARK}@h/d", "HOOK": MARK, "PGSERVICE": "x"}
    notifier = Notifier(environ=os.environ | environ, deadline=60)
    yield notifier
    await notifier.close()


def targets(server: Hook) -> list[str]:
    return [
        f"json://user:{MARK}@127.0.0.1:1/{MARK}/?x={MARK}",
        f"json://user:{MARK}@{server.address}/{MARK}",
        f"webhook+http://user:{MARK}@127.0.0.1:1/{MARK}?a={MARK}&secret={MARK}",
        f"webhook+http://{server.address}/{MARK}?secret=env:HOOK",
        f"webhook+http://nowhere.invalid/{MARK}",
        f"pagerduty://{MARK}?url=http://127.0.0.1:1/{MARK}",
        f"pagerduty://{MARK}?url=http://{server.address}/{MARK}",
        f"mailto://user:{MARK}@127.0.0.1:1?from={MARK}@example.org&to=a@example.org",
        f"slack://{MARK}",
        f"slakc://{MARK}/{MARK}",
        f"tgram://{MARK}/",
        f"json://[::1/{MARK}",
        f"webhook+http://[::1/{MARK}",
        f"raising://{MARK}",
        f"printing://{MARK}",
        f"dying://{MARK}",
        MARK,
    ]


async def test_nothing_secret_comes_out_of_a_failing_channel(
    notifier: Notifier, server: Hook, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    for target in targets(server):
        delivery = await notifier.send(channel(target), [alert(output=f"env: {MARK}", error=MARK)])
        assert not delivery.sent, target
        assert delivery.error, target
        assert MARK not in delivery.error, target
        assert MARK not in repr(notifier._request(channel(target), [alert()])), target
    assert MARK not in "".join(capfd.readouterr()) + caplog.text


async def test_nothing_secret_is_in_the_arguments_or_the_environment_of_a_sender(
    notifier: Notifier, server: Hook
) -> None:
    server.answer = server.hang
    target = channel(f"webhook+http://{server.address}/{MARK}?secret={MARK}")
    sending = asyncio.ensure_future(notifier.send(target, [alert(output=MARK)]))
    await was_asked(server)
    [sender] = notifier._busy
    for name in ("cmdline", "environ"):
        text = Path(f"/proc/{sender.pid}/{name}").read_bytes().replace(b"\0", b"\n")  # noqa: ASYNC240 # not a real file
        assert MARK.encode() not in text
        assert b"\nPG" not in text
    sending.cancel()


@pytest.mark.parametrize("field", ["output", "error", "reason", "problem"])
def test_what_the_worker_knows_as_secret_is_in_no_message(field: str, notifier: Notifier) -> None:
    template = "{{ " + field + " }} {{ text }}"
    with hook() as taking:
        for scheme in ("json://{}/", "webhook+http://{}/", "pagerduty://K?url=http://{}/"):
            target = channel(scheme.format(taking.address), template=template)
            request = notifier._request(target, [replace(alert(), payload={"job": "x", field: f"is {MARK}!"})])
            assert send(request) == Delivery(sent=True)
        for posted in taking.posted:
            assert MARK.encode() not in posted.body
            assert b"is ***!" in posted.body
        assert len(taking.posted) == 3


def test_nothing_secret_is_in_what_is_said_of_a_target(
    server: Hook, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    refusals = 0
    for target in targets(server):
        assert MARK not in describe_target(target)
        for given, environ in ((target, {}), ("env:A", {"A": target})):
            said, refused = said_of(given, environ)
            assert MARK not in said
            refusals += refused
    assert refusals >= 14
    assert MARK not in "".join(capfd.readouterr()) + caplog.text


def said_of(target: str, environ: dict[str, str]) -> tuple[str, bool]:
    """The warning, or the whole traceback of the refusal; and whether it is one."""
    try:
        return check_target(target, environ) or "", False
    except InvalidInput as refused:
        return "".join(traceback.format_exception(refused)), True


@pytest.mark.parametrize("module", [tenure, watcher])
async def test_the_password_of_a_connection_string_that_was_given_as_an_option_is_masked(
    module: ModuleType, server: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Notifier] = []
    monkeypatch.setattr(module, "Notifier", lambda **options: made.append(Notifier(**options)))
    monkeypatch.delenv("PGCRON_DSN", raising=False)
    database = Database(f"host=db user=app password={MARK}")
    if module is tenure:
        tenure.Tenure(database, WorkerSettings(name="w"), cast("Guard", None))
    else:
        watcher.Watcher(database)
    (notifier,) = made
    delivery = await notifier.send(channel(f"json://{server.address}/"), [alert(error=f"no entry for {MARK}")])
    await notifier.close()
    assert not delivery.sent
    (body,) = [posted.body.decode() for posted in server.posted]
    assert "no entry for ***" in body
    assert MARK not in body
