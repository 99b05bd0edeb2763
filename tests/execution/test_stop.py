"""The one way in which runs are stopped."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import StopReason
from tests.execution.tasks import stopped


async def until_stopped(stop: Stop, began: asyncio.Event) -> str:
    with stop.cancels_this_task():
        began.set()
        await asyncio.sleep(600)
    return "ended here"


async def test_the_first_reason_stays_and_a_later_request_only_makes_it_faster() -> None:
    stop = Stop()
    stop.request(StopReason.CANCEL)
    assert (stop.reason, stop.event.is_set(), stop.now.is_set()) == (StopReason.CANCEL, True, False)
    stop.request(StopReason.LEASE, now=True)
    assert (stop.reason, stop.event.is_set(), stop.now.is_set()) == (StopReason.CANCEL, True, True)


async def test_a_stop_cancels_what_is_inside_and_the_cancellation_ends_there() -> None:
    stop, began = Stop(), asyncio.Event()
    task = asyncio.create_task(until_stopped(stop, began))
    await began.wait()
    stop.request(StopReason.DRAIN)
    assert await task == "ended here"
    assert task.cancelling() == 0


async def test_a_cancellation_from_elsewhere_goes_through() -> None:
    stop, began = Stop(), asyncio.Event()
    task = asyncio.create_task(until_stopped(stop, began))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_so_it_does_when_a_stop_comes_as_well() -> None:
    stop, began = Stop(), asyncio.Event()
    task = asyncio.create_task(until_stopped(stop, began))
    await began.wait()
    stop.request(StopReason.DRAIN)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_body_that_swallows_it_or_raises_leaves_no_cancellation_behind() -> None:
    async def swallows(stop: Stop) -> int:
        task = asyncio.current_task()
        assert task is not None
        with stop.cancels_this_task():
            asyncio.get_running_loop().call_soon(stop.request, StopReason.TIMEOUT)
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(600)
        return task.cancelling()

    async def raises(stop: Stop) -> int:
        task = asyncio.current_task()
        assert task is not None
        with suppress(ZeroDivisionError), stop.cancels_this_task():
            asyncio.get_running_loop().call_soon(stop.request, StopReason.TIMEOUT)
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(600)
            _ = 1 / 0
        return task.cancelling()

    assert await asyncio.create_task(swallows(Stop())) == 0
    assert await asyncio.create_task(raises(Stop())) == 0


async def test_its_own_cancelled_error_is_not_taken_for_a_stop() -> None:
    with pytest.raises(asyncio.CancelledError), Stop().cancels_this_task():
        raise asyncio.CancelledError


async def test_after_the_body_a_stop_cancels_nothing() -> None:
    stop = Stop()
    with stop.cancels_this_task():
        pass
    stop.request(StopReason.CANCEL)
    await asyncio.sleep(0)


async def test_a_listener_is_called_once_and_only_within() -> None:
    heard: list[str] = []
    stop = Stop()
    with stop.calls(lambda: heard.append("first")):
        stop.request(StopReason.CANCEL)
        stop.request(StopReason.LEASE, now=True)
    assert heard == ["first"]
    with stop.calls(lambda: heard.append("second")):
        assert heard == ["first", "second"]
    late = Stop()
    with late.calls(lambda: heard.append("third")):
        pass
    late.request(StopReason.CANCEL)
    assert heard == ["first", "second"]


async def test_one_can_wait_for_a_stop_but_not_for_ever() -> None:
    stop = Stop()
    assert not await stop.is_requested_within(0.001)
    asyncio.get_running_loop().call_soon(stop.request, StopReason.CANCEL)
    assert await stop.is_requested_within(60)
    assert not await stop.is_urgent_within(0.001)
    assert await stopped(now=True).is_urgent_within(60)
