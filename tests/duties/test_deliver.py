"""Deliver: the outbox goes out, whatever a channel or a worker does. Real rows; the notifier is at the edge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pgcron_runner import database as sessions
from pgcron_runner.database import Purpose
from pgcron_runner.deliver import Deliver
from pgcron_runner.model import Alert, Channel, Delivery
from pgcron_runner.session import Session
from tests.statements.builders import add_job, add_running
from tests.statements.test_incidents import add_channel
from tests.support.databases import Database
from tests.support.waiting import eventually_async


class Recorder:
    """Takes all messages, or does with them what the test wants."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[int]]] = []
        self.answers: dict[str, Delivery] = {}
        self.held: dict[str, asyncio.Event] = {}
        self.resent: list[bool] = []

    async def send(self, channel: Channel, alerts: Sequence[Alert]) -> Delivery:
        if (gate := self.held.get(channel.name)) is not None:
            await gate.wait()
        self.resent.append(any("resent" in alert.payload for alert in alerts))
        self.sent.append((channel.name, [alert.id for alert in alerts]))
        return self.answers.get(channel.name, Delivery(sent=True))

    async def close(self) -> None:
        pass


@asynccontextmanager
async def delivering(database: Database, recorder: Recorder) -> AsyncIterator[Deliver]:
    session = Session(sessions.Database(database.dsn, "deliver"), Purpose.RECORD)
    deliver = Deliver(session, recorder, lambda: None)  # type: ignore[arg-type]
    yield deliver
    await deliver.close()
    await session.close()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def deliver(database: Database, recorder: Recorder) -> AsyncIterator[Deliver]:
    async with delivering(database, recorder) as made:
        yield made


def write(database: Database, channel: int, count: int = 1, **columns: Any) -> list[int]:
    """Alerts in the outbox."""
    rows = database.rows(
        """insert into pgcron.alerts (channel_id, job_name, event, dedup_key, payload, first_tried_at)
           select %s, 'job', 'failed', gen_random_uuid()::text, '{"job": "job"}', %s
             from generate_series(1, %s) returning id""",
        (channel, columns.get("first_tried_at"), count),
    )
    return [row[0] for row in rows]


def unsent(database: Database) -> list[tuple[Any, ...]]:
    return database.rows(
        """select tries, send_at > now(), given_up_at is not null, error from pgcron.alerts
            where sent_at is null order by id"""
    )


async def test_what_waits_goes_out_once(deliver: Deliver, recorder: Recorder, database: Database) -> None:
    first, second = add_channel(database, "first"), add_channel(database, "second")
    [one], [other] = write(database, first), write(database, second)
    await deliver.flush()
    assert sorted(recorder.sent) == [("first", [one]), ("second", [other])]
    assert unsent(database) == []
    assert database.rows("select told_at is not null from pgcron.channels") == [(True,), (True,)]
    assert await deliver.step() is None
    assert len(recorder.sent) == 2


async def test_one_channel_that_hangs_delays_no_other(deliver: Deliver, recorder: Recorder, database: Database) -> None:
    bad, good = add_channel(database, "bad"), add_channel(database, "good")
    recorder.held["bad"] = asyncio.Event()
    write(database, bad, 2)
    await deliver.step()
    [alert_id] = write(database, good)
    await deliver.step()

    async def is_sent() -> bool:
        return bool(recorder.sent)

    await eventually_async(is_sent)
    assert recorder.sent == [("good", [alert_id])]
    recorder.held["bad"].set()
    await deliver.wait_until_idle()


async def test_many_alerts_are_one_message(deliver: Deliver, recorder: Recorder, database: Database) -> None:
    alert_ids = write(database, add_channel(database), 2_000)
    await deliver.flush()
    assert recorder.sent == [("ops", alert_ids)]
    assert unsent(database) == []


async def test_a_storm_is_slowed_down(deliver: Deliver, recorder: Recorder, database: Database) -> None:
    channel = add_channel(database)
    for _ in range(10):
        write(database, channel)
        await deliver.flush()
    assert len(recorder.sent) == 5
    assert await deliver.step() == 15


async def test_what_was_not_taken_is_tried_again(deliver: Deliver, recorder: Recorder, database: Database) -> None:
    write(database, add_channel(database))
    recorder.answers["ops"] = Delivery(sent=False, error="it answered 500", retry_after=60)
    await deliver.flush()
    assert unsent(database) == [(1, True, False, "it answered 500")]
    pause = await deliver.step()
    assert pause is not None
    assert 50 < pause <= 60
    recorder.answers.clear()
    database.execute("update pgcron.alerts set send_at = now()")
    await deliver.flush()
    assert unsent(database) == []


@pytest.mark.parametrize(
    ("first_tried_at", "permanent", "given_up"),
    [(None, False, False), (None, True, True), ("2020-01-01", False, True)],
)
async def test_it_is_given_up_after_a_day_or_where_it_can_never_be_sent(
    first_tried_at: str | None,
    permanent: bool,
    given_up: bool,
    deliver: Deliver,
    recorder: Recorder,
    database: Database,
) -> None:
    write(database, add_channel(database), first_tried_at=first_tried_at)
    recorder.answers["ops"] = Delivery(sent=False, error="no", permanent=permanent)
    await deliver.flush()
    assert unsent(database) == [(1, True, given_up, "no")]
    assert (await deliver.step() is None) == given_up


async def test_what_a_worker_had_in_hand_when_it_died_is_sent_by_another(
    recorder: Recorder, database: Database
) -> None:
    [alert_id] = write(database, add_channel(database))
    recorder.held["ops"] = asyncio.Event()
    async with delivering(database, recorder) as dying:
        await dying.step()
    assert recorder.sent == []
    recorder.held.clear()
    async with delivering(database, recorder) as other:
        pause = await other.step()
        assert pause is not None
        assert 100 < pause <= 120
        database.execute("update pgcron.alerts set send_at = now()")
        await other.flush()
    assert recorder.sent == [("ops", [alert_id])]


async def test_what_may_come_a_second_time_says_so(recorder: Recorder, database: Database) -> None:
    write(database, add_channel(database))
    recorder.held["ops"] = asyncio.Event()
    async with delivering(database, recorder) as dying:
        await dying.step()
    database.execute("update pgcron.alerts set send_at = now()")
    async with delivering(database, recorder) as other:
        recorder.held.clear()
        recorder.answers["ops"] = Delivery(sent=False, error="it answered 500")
        await other.flush()
        database.execute("update pgcron.alerts set send_at = now()")
        await other.flush()
    assert recorder.resent == [True, False]


async def test_nothing_overtakes_what_was_said_of_the_same_incident_before(
    deliver: Deliver, recorder: Recorder, database: Database
) -> None:
    """Else a pager would be resolved first and called after that, for ever."""
    channel = add_channel(database)
    database.execute("insert into pgcron.incidents (job_name, event) values ('job', 'failed'), ('other', 'failed')")
    failed, recovered, other = write(database, channel, 3)
    database.execute("update pgcron.alerts set incident_id = case when id = %s then 2 else 1 end", (other,))
    later = "update pgcron.alerts set send_at = now() + make_interval(secs => %s) where id = %s"
    database.execute(later, (60, failed))
    await deliver.flush()
    await deliver.flush()
    assert recorder.sent == [("ops", [other])]
    database.execute(later, (0, failed))
    for _ in range(2):
        await deliver.flush()
    assert recorder.sent[1:] == [("ops", [failed]), ("ops", [recovered])]


async def test_of_a_message_that_is_taken_in_part_the_rest_follows(
    deliver: Deliver, recorder: Recorder, database: Database
) -> None:
    written = write(database, add_channel(database), 10)
    recorder.answers["ops"] = Delivery(sent=False, error="slow", taken=7)
    await deliver.flush()
    assert len(unsent(database)) == 3
    recorder.answers.clear()
    database.execute("update pgcron.alerts set send_at = now()")
    for _ in range(3):
        await deliver.flush()
    assert sorted(alert_id for _, alert_ids in recorder.sent[1:] for alert_id in alert_ids) == written[7:]


async def test_channels_that_hang_leave_places_for_all_others(
    deliver: Deliver, recorder: Recorder, database: Database
) -> None:
    bad = [add_channel(database, f"bad-{number}") for number in range(20)]
    for number, channel in enumerate(bad):
        recorder.held[f"bad-{number}"] = asyncio.Event()
        write(database, channel)
    good = write(database, add_channel(database, "good"))

    async def is_sent() -> bool:
        await deliver.step()
        return bool(recorder.sent)

    await eventually_async(is_sent)
    assert recorder.sent == [("good", good)]
    for gate in recorder.held.values():
        gate.set()
    await deliver.wait_until_idle()


async def test_two_workers_do_not_send_the_same(recorder: Recorder, database: Database) -> None:
    channels = [add_channel(database, f"channel-{number}") for number in range(5)]
    written = sorted(alert_id for channel in channels for alert_id in write(database, channel, 20))
    async with delivering(database, recorder) as one, delivering(database, recorder) as other:
        await asyncio.gather(one.flush(), other.flush())
    assert sorted(alert_id for _, alert_ids in recorder.sent for alert_id in alert_ids) == written


async def test_a_channel_that_is_muted_disabled_or_gone_gets_nothing(
    deliver: Deliver, recorder: Recorder, database: Database
) -> None:
    muted, disabled, gone = (add_channel(database, name) for name in ("muted", "disabled", "gone"))
    for channel in (muted, disabled, gone):
        write(database, channel)
    database.execute("update pgcron.channels set muted_until = now() + interval '1 hour' where id = %s", (muted,))
    database.execute("update pgcron.channels set enabled = false where id = %s", (disabled,))
    database.execute("delete from pgcron.channels where id = %s", (gone,))
    await deliver.flush()
    assert recorder.sent == []
    assert len(unsent(database)) == 2


async def test_the_key_of_an_incident_is_its_own(deliver: Deliver, recorder: Recorder, database: Database) -> None:
    seen: list[Alert] = []

    async def send(channel: Channel, alerts: Sequence[Alert]) -> Delivery:
        seen.extend(alerts)
        return Delivery(sent=True)

    recorder.send = send  # type: ignore[method-assign]
    add_channel(database)
    job_id = add_job(database)
    for number, status in enumerate(("failed", "succeeded"), 1):
        run_id = add_running(database, job_id, scheduled_for=f"2026-01-0{number}", in_incident=True)
        database.execute("update pgcron.runs set status = %s, finished_at = now() where id = %s", (status, run_id))
    await deliver.flush()
    assert [alert.event for alert in seen] == ["failed"]
    await deliver.flush()
    assert [alert.event for alert in seen] == ["failed", "recovered"]
    assert len({alert.incident_key for alert in seen}) == 1
    installation = database.value("select installation from pgcron.settings")
    assert seen[0].incident_key == f"pgcron/{installation}/1"
