"""When is there something to do, and how many more may a limited queue start?"""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from pgcron_runner.database import Connection
from pgcron_runner.decisions import Lane, LaneDue, NextDue
from pgcron_runner.store import runs
from tests.statements.builders import (
    DEFAULT_LANE,
    NOW,
    OTHER_WORKER,
    ZONE_DATA,
    add_final,
    add_job,
    add_planned_job,
    add_run,
    add_running,
    claim,
    edit_job,
    minutes,
    register,
)
from tests.support.databases import Database

# ----------------------------------------------------------------------------------------------- next due


async def test_an_empty_installation_has_nothing_to_do(control: Connection) -> None:
    assert await runs.next_due(control, zone_data=ZONE_DATA, now=NOW) == NextDue(None, ())


@pytest.mark.parametrize("minute", [-90, 0, 5])
async def test_the_earliest_planned_time_counts_also_an_overdue_one(
    minute: int, control: Connection, database: Database
) -> None:
    add_planned_job(database, "first", next_run_at=NOW + minutes(minute))
    add_planned_job(database, "second", next_run_at=NOW + minutes(minute + 1))
    assert (await runs.next_due(control, zone_data=ZONE_DATA, now=NOW)).jobs_due_in == 60 * minute


async def test_a_new_job_is_due_at_once_by_the_databases_clock(control: Connection, database: Database) -> None:
    add_job(database)
    due_in = (await runs.next_due(control, zone_data=ZONE_DATA)).jobs_due_in
    assert due_in is not None
    assert -60 < due_in <= 0


async def test_nobody_waits_for_what_is_left_to_newer_zone_data(control: Connection, database: Database) -> None:
    newer = register(database, zone_data="2026b")
    add_planned_job(database, "first", next_run_at=NOW - minutes(1))
    database.execute("update pgcron.jobs set zone_data = '2026b'")
    assert (await runs.next_due(control, zone_data="2026a", now=NOW)).jobs_due_in is None
    assert (await runs.next_due(control, zone_data="2026b", now=NOW)).jobs_due_in == -60
    add_planned_job(database, "second", next_run_at=NOW + minutes(1))
    assert (await runs.next_due(control, zone_data="2026a", now=NOW)).jobs_due_in == 60
    database.execute("update pgcron.workers set ended_at = now() where id = %s", (newer,))
    assert (await runs.next_due(control, zone_data="2026a", now=NOW)).jobs_due_in == -60


async def test_disabled_and_unplannable_jobs_are_not_waited_for(control: Connection, database: Database) -> None:
    edit_job(database, add_planned_job(database, "off"), enabled=False)
    add_planned_job(database, "never-again", next_run_at=None)
    assert (await runs.next_due(control, zone_data=ZONE_DATA, now=NOW)).jobs_due_in is None


async def test_what_is_queued_is_told_lane_by_lane(control: Connection, database: Database) -> None:
    for queue, priority, ago in [("b", 0, 1), ("b", 0, -3), ("b", 0, -2), ("a", 7, -5), ("a", -7, 1), ("b", 1, 0)]:
        add_run(database, add_job(database, str(uuid4()), queue=queue, priority=priority), ago=minutes(ago))
    add_running(database, add_job(database, "running", queue="c"))
    add_final(database, add_job(database, "final", queue="c"))
    assert (await runs.next_due(control, zone_data=ZONE_DATA, now=NOW)).lanes == (
        LaneDue(Lane("a", -7), is_due=True, due_in=None),
        LaneDue(Lane("a", 7), is_due=False, due_in=300),
        LaneDue(Lane("b", 0), is_due=True, due_in=120),
        LaneDue(Lane("b", 1), is_due=True, due_in=None),
    )


async def test_the_limit_of_a_queue_is_told(control: Connection, database: Database) -> None:
    database.execute("insert into pgcron.queues (name, max_running) values ('mail', 3)")
    add_run(database, add_job(database, queue="mail"))
    assert (await runs.next_due(control, zone_data=ZONE_DATA, now=NOW)).lanes == (
        LaneDue(Lane("mail", 0, 3), is_due=True, due_in=None),
    )


async def test_a_paused_queue_is_left_out_and_the_others_go_on(control: Connection, database: Database) -> None:
    database.execute("insert into pgcron.queues (name, paused) values ('mail', true)")
    for queue in ("mail", "default"):
        add_run(database, add_job(database, queue, queue=queue))
    add_planned_job(database, "planned")
    database.execute("update pgcron.jobs set next_run_at = %s", (NOW,))
    due = await runs.next_due(control, zone_data=ZONE_DATA, now=NOW)
    assert ([lane.lane for lane in due.lanes], due.jobs_due_in) == ([DEFAULT_LANE], 0)


async def test_while_everything_is_paused_nothing_is_due(control: Connection, database: Database) -> None:
    add_planned_job(database, "planned")
    add_run(database, add_job(database, "queued"))
    database.execute("update pgcron.settings set paused = true")
    assert await runs.next_due(control, zone_data=ZONE_DATA, now=NOW) == NextDue(None, ())


# ---------------------------------------------------------------------------------------- queues with a limit


@pytest.fixture
def mail(database: Database) -> str:
    database.execute("insert into pgcron.queues (name, max_running) values ('mail', 2)")
    return "mail"


async def test_a_limited_queue_counts_all_workers_runs(control: Connection, database: Database, mail: str) -> None:
    assert await runs.places_in_queue(control, mail) == 2
    add_running(database, add_job(database, "one", queue=mail), OTHER_WORKER)
    add_running(database, add_job(database, "elsewhere"))
    add_run(database, add_job(database, "queued", queue=mail))
    assert await runs.places_in_queue(control, mail) == 1


async def test_a_limit_that_was_lowered_below_what_runs_leaves_no_places(
    control: Connection, database: Database, mail: str
) -> None:
    for name in "abc":
        add_running(database, add_job(database, name, queue=mail))
    assert await runs.places_in_queue(control, mail) == 0


async def test_a_queue_that_is_gone_or_unlimited_by_now_has_no_places(control: Connection, database: Database) -> None:
    assert await runs.places_in_queue(control, "gone") == 0
    assert await runs.places_in_queue(control, "default") == 0


async def test_only_one_worker_counts_at_a_time_and_the_next_sees_its_claims(
    control: Connection, other: Connection, database: Database, mail: str
) -> None:
    for name in "abc":
        add_run(database, add_job(database, name, queue=mail))
    async with control.transaction():
        assert await runs.places_in_queue(control, mail) == 2
        assert len((await claim(control, lane=Lane(mail, 0), limit=1)).tasks) == 1
        assert await runs.places_in_queue(other, mail) == 0
    async with other.transaction():
        assert await runs.places_in_queue(other, mail) == 1


async def test_two_workers_together_never_exceed_the_limit_of_a_queue(
    control: Connection, other: Connection, database: Database, mail: str
) -> None:
    for i in range(40):
        add_run(database, add_job(database, f"job-{i}", queue=mail))

    async def work(connection: Connection) -> None:
        for _ in range(20):
            async with connection.transaction():
                if places := await runs.places_in_queue(connection, mail):
                    await claim(connection, lane=Lane(mail, 0), limit=places)
            assert database.value("select count(*) from pgcron.runs where status = 'running'") <= 2
            database.execute(
                "update pgcron.runs set status = 'succeeded', finished_at = now() where id = any(array("
                "select id from pgcron.runs where status = 'running' limit 1))"
            )

    await asyncio.gather(work(control), work(other))
    assert database.value("select count(*) from pgcron.runs where status = 'succeeded'") > 2
