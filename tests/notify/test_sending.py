"""Messages on their way: real sender processes, and channels that hang, drip, raise and die."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pgcron_runner.model import Delivery
from pgcron_runner.notify import Notifier
from pgcron_runner.notify import notifier as module
from pgcron_runner.notify.process import SenderProcess
from tests.notify.facts import TOKEN, alert, channel
from tests.support.listeners import Hook, hook
from tests.support.waiting import eventually, eventually_async

HOSTILE = Path(__file__).parent / "hostile"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> Iterator[Hook]:
    with hook() as made:
        yield made


@pytest.fixture
def good() -> Iterator[Hook]:
    with hook() as made:
        yield made


@pytest.fixture
async def notifier(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Notifier]:
    monkeypatch.syspath_prepend(HOSTILE)
    notifier = Notifier(environ=os.environ | {"PGPASSWORD": "s3cr3t-2-word", "PGHOST": "somewhere"}, deadline=60)
    yield notifier
    await notifier.close()


async def was_asked(server: Hook, times: int = 1) -> None:
    async def is_asked() -> bool:
        return len(server.posted) >= times

    await eventually_async(is_asked, 60)


async def gone(*pids: int) -> None:
    async def is_gone() -> bool:
        return not any(is_alive(pid) for pid in pids)

    await eventually_async(is_gone, 60)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    """Of each of its threads, since Apprise sends in one."""
    lists = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for children in lists for child in children]


async def test_a_process_is_started_for_the_first_message_and_kept_for_the_next(notifier: Notifier, good: Hook) -> None:
    assert not notifier._idle
    for number in range(3):
        assert await notifier.send(channel(f"json://{good.address}/"), [alert(number=number)]) == Delivery(sent=True)
    assert len(notifier._idle) == 1
    assert [posted.json["title"] for posted in good.posted] == ["backup failed on db-1"] * 3


def test_a_worker_without_alerts_loads_none_of_it() -> None:
    program = """
        import sys, pgcron_runner.worker, pgcron_runner.watcher
        print({"apprise", "requests", "jinja2", "markdown"} & sys.modules.keys())
    """
    made = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, cwd=ROOT)
    assert (made.stdout, made.stderr) == ("set()\n", "")


async def test_one_that_is_idle_ends(notifier: Notifier, good: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    before = children_of(os.getpid())
    monkeypatch.setattr(module, "_IDLE", 0.01)
    assert (await notifier.send(channel(f"webhook+http://{good.address}/"), [alert()])).sent

    async def is_empty() -> bool:
        return not (notifier._idle or notifier._busy or notifier._ending)

    await eventually_async(is_empty)
    assert children_of(os.getpid()) == before


async def test_that_somebody_takes_it_on_is_told_to_pagers_alone(notifier: Notifier, good: Hook) -> None:
    assert (await notifier.send(channel(f"json://{good.address}/"), [alert("acknowledged")])).sent
    assert not notifier._idle
    assert (await notifier.send(channel(f"pagerduty://KEY?url=http://{good.address}/"), [alert("acknowledged")])).sent
    assert [posted.json["event_action"] for posted in good.posted] == ["acknowledge"]


async def test_a_reference_that_leads_nowhere_is_told(notifier: Notifier) -> None:
    delivery = await notifier.send(channel("env:NOT_THERE"), [alert()])
    assert delivery == Delivery(sent=False, error="on this worker's host, there is no environment variable NOT_THERE")
    assert not notifier._idle


# --------------------------------------------------------------------------------------- channels that misbehave


async def test_channels_that_never_answer_are_cut_off_and_delay_no_other(
    notifier: Notifier, server: Hook, good: Hook
) -> None:
    # Warm ones for all, so that the deadline is about the channels.
    await asyncio.gather(*(notifier.send(channel(f"json://{good.address}/"), [alert()]) for _ in range(6)))
    notifier._deadline = 5
    with (
        hook() as dripping,
        closing(socket.create_server(("127.0.0.1", 0))) as silent,
        closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as resolver,
        ExitStack() as accepted,
    ):
        server.answer, dripping.answer = server.hang, dripping.drip
        resolver.bind(("127.0.0.1", 0))
        targets = [
            f"json://{server.address}/?rto=60",
            f"webhook+http://{dripping.address}/",
            f"jsons://127.0.0.1:{silent.getsockname()[1]}/?cto=60&rto=60",
            f"json://udp-{resolver.getsockname()[1]}/",
            "forking://x",
        ]
        bad = [asyncio.ensure_future(notifier.send(channel(target, 2), [alert()])) for target in targets]
        await was_asked(server)
        await was_asked(dripping)
        await asyncio.to_thread(resolver.recv, 512)
        accepted.enter_context(closing((await asyncio.to_thread(silent.accept))[0]))
        senders = list(notifier._busy)
        assert len(senders) == len(targets)
        forked = await eventually_async(_forked(senders), 60)
        for number in range(3):
            assert (await notifier.send(channel(f"json://{good.address}/"), [alert(number=number)])).sent
        assert not any(sending.done() for sending in bad)
        for sending in bad:
            assert await sending == Delivery(sent=False, error="no answer within 5 s; the sender was killed")
        await gone(*(sender.pid for sender in senders), *forked)
    # The channel that hung has a sender again.
    notifier._deadline = 60
    server.answer = None
    assert (await notifier.send(channel(f"json://{server.address}/", 2), [alert()])).sent


def _forked(senders: list[SenderProcess]) -> Callable[[], Awaitable[list[int]]]:
    async def forked() -> list[int]:
        return [child for sender in senders for child in children_of(sender.pid)]

    return forked


async def test_one_good_and_one_bad_channel_are_judged_each_by_itself(notifier: Notifier, good: Hook) -> None:
    refused, taken = await asyncio.gather(
        notifier.send(channel("json://127.0.0.1:1/"), [alert()]),
        notifier.send(channel(f"json://{good.address}/", 2), [alert()]),
    )
    assert (refused.sent, taken) == (False, Delivery(sent=True))


async def test_a_plugin_that_raises_is_a_channel_that_refuses(notifier: Notifier, good: Hook) -> None:
    delivery = await notifier.send(channel(f"raising://{TOKEN}"), [alert()])
    assert not delivery.sent
    assert delivery.error is not None
    assert delivery.error.endswith("Exception: cannot reach ***")
    assert not delivery.permanent
    assert (await notifier.send(channel(f"json://{good.address}/"), [alert()])).sent
    assert len(notifier._idle) == 1


async def test_the_last_words_of_a_sender_are_told_without_secrets(notifier: Notifier, good: Hook) -> None:
    delivery = await notifier.send(channel(f"dying://{TOKEN}"), [alert()])
    assert delivery == Delivery(sent=False, error="the sender process ended; its last words: no more of ***")
    assert (await notifier.send(channel(f"json://{good.address}/"), [alert()])).sent


async def test_a_sender_that_was_killed_between_messages_is_replaced(notifier: Notifier, good: Hook) -> None:
    target = channel(f"webhook+http://{good.address}/")
    assert (await notifier.send(target, [alert()])).sent
    [sender] = notifier._idle
    os.kill(sender.pid, 9)
    assert await notifier.send(target, [alert(number=2)]) == Delivery(sent=False, error="the sender process ended")
    assert (await notifier.send(target, [alert(number=2)])).sent


# ------------------------------------------------------------------------------------------------------ the end


@pytest.mark.parametrize("cancelled", [True, False])
async def test_closing_cuts_off_what_is_on_its_way(cancelled: bool, notifier: Notifier, server: Hook) -> None:
    server.answer = server.hang
    sending = asyncio.ensure_future(notifier.send(channel(f"webhook+http://{server.address}/"), [alert()]))
    await was_asked(server)
    [sender] = notifier._busy
    if cancelled:
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    await notifier.close()
    assert not is_alive(sender.pid)
    if not cancelled:
        assert await sending == Delivery(sent=False, error="the sender process ended")


def test_a_sender_outlives_a_worker_that_was_killed_by_no_more_than_the_deadline(server: Hook) -> None:
    server.answer = server.hang
    program = f"""
        import asyncio
        from dataclasses import replace
        from pgcron_runner.notify import Notifier
        from tests.notify.facts import alert, channel

        async def main():
            notifier = Notifier(deadline=60)
            make = notifier._request
            notifier._request = lambda *given: replace(make(*given), deadline=0.5)
            await notifier.send(channel("json://{server.address}/?rto=600"), [alert()])

        asyncio.run(main())
    """
    worker = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT)
    try:
        eventually(lambda: server.posted, 60)
        [sender] = children_of(worker.pid)
    finally:
        worker.kill()
        worker.wait()
    eventually(lambda: not is_alive(sender), 60)
