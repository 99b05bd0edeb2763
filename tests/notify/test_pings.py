"""Signs of life to monitors: real calls to a real server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from pgcron_runner.model import Outcome, Status, Task
from pgcron_runner.notify.pings import Pings
from tests.execution.tasks import some_task
from tests.support.listeners import Hook, answering, hook


@pytest.fixture
def server() -> Iterator[Hook]:
    with hook() as made:
        yield made


@pytest.fixture
async def pings(server: Hook) -> AsyncIterator[Pings]:
    made = Pings(os.environ | {"MONITOR": f"http://{server.address}/secret/"})
    yield made
    await made.close()


@pytest.mark.parametrize(("status", "end"), [(Status.SUCCEEDED, ""), (Status.FAILED, "/fail"), (Status.LOST, "/fail")])
async def test_a_monitor_hears_of_each_start_and_end(status: Status, end: str, pings: Pings, server: Hook) -> None:
    async def runner(task: Task) -> Outcome:
        await pings.flush()
        return Outcome(status)

    run = pings.around(runner)
    assert await run(some_task(heartbeat_url="env:MONITOR")) == Outcome(status)
    await pings.flush()
    assert [posted.path for posted in server.posted] == ["/secret/start", f"/secret{end}"]


async def test_a_job_without_a_monitor_calls_nobody(pings: Pings, server: Hook) -> None:
    async def runner(task: Task) -> Outcome:
        return Outcome(Status.SUCCEEDED)

    await pings.around(runner)(some_task())
    await pings.flush()
    assert server.posted == []


async def test_a_monitor_that_is_gone_fails_nothing_and_shows_no_secret(
    pings: Pings, server: Hook, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = answering(500)
    for url in ("http://127.0.0.1:1/s3cr3t-1", "env:NOT_THERE", "nonsense://s3cr3t-1", "env:MONITOR"):
        pings.call(url)
    await pings.flush()
    logged = "".join(capsys.readouterr())
    assert logged.count("heartbeat_not_sent") == 4
    assert "s3cr3t-1" not in logged
    assert "secret" not in logged
