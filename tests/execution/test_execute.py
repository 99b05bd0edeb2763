"""What a worker has in hand: from the start of a run to the moment its end is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pgcron_runner import database as sessions
from pgcron_runner.database import Purpose
from pgcron_runner.embedded import Server
from pgcron_runner.execute import Execute
from pgcron_runner.execution.live import Live
from pgcron_runner.execution.processes import Guard
from pgcron_runner.execution.python import PythonRunner
from pgcron_runner.execution.runners import Runners
from pgcron_runner.execution.shell import run_shell
from pgcron_runner.execution.stop import Stop
from pgcron_runner.finish import Finish
from pgcron_runner.migrate import migrate_database
from pgcron_runner.model import Finished, Kind, Outcome, Output, Status, StopReason, Task
from pgcron_runner.session import Session
from pgcron_runner.settings import WorkerSettings
from pgcron_runner.store.runs import LockedJob
from tests.execution.tasks import claimed_task, recorded_status, some_task
from tests.statements.builders import WORKER
from tests.support.databases import Database, drop_database
from tests.support.waiting import eventually, eventually_async

SUCCESS = Outcome(Status.SUCCEEDED, result=1)


@dataclass
class Stage:
    """An Execute whose one kind of run does what the test says: `ends` it, or waits for its stop."""

    begun: list[int] = field(default_factory=list)
    ends: dict[int, asyncio.Future[Outcome]] = field(default_factory=dict)
    heard: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.execute = Execute({Kind.SHELL: self._run}, self._on_finished)

    def start(self, *run_ids: int, **changes: Any) -> None:
        for run_id in run_ids:
            self.ends[run_id] = asyncio.get_running_loop().create_future()
        self.execute.start(some_task(run_id=run_id, job_id=run_id * 10, **changes) for run_id in run_ids)

    async def begin(self, *run_ids: int, **changes: Any) -> None:
        self.start(*run_ids, **changes)
        await asyncio.sleep(0)
        assert self.begun[-len(run_ids) :] == list(run_ids)

    def outcome(self, run_id: int) -> Outcome:
        return self.execute.unrecorded[run_id].outcome

    async def _run(self, task: Task, stop: Stop, live: Live) -> Outcome:
        self.begun.append(task.run_id)
        end = self.ends[task.run_id]

        def terminate() -> None:
            if not end.done():
                end.set_result(Outcome(Status.FAILED, exit_code=143))

        with stop.calls(terminate):
            return await end

    def _on_finished(self) -> None:
        assert self.execute.unrecorded, "the outcome is there before anybody is told"
        self.heard.append(len(self.execute.unrecorded))


async def turns() -> None:
    """A few turns of the loop: what can go on has gone on."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def stage() -> Stage:
    return Stage()


# In hand


async def test_a_run_is_in_hand_until_its_end_is_recorded(stage: Stage) -> None:
    await stage.begin(1, 2)
    assert (stage.execute.running, stage.execute.run_ids) == (2, [1, 2])
    stage.ends[1].set_result(SUCCESS)
    await turns()
    assert (stage.execute.run_ids, list(stage.execute.unrecorded), stage.heard) == ([2, 1], [1], [1])
    assert sorted(lock.job_id for lock in stage.execute.locked_jobs()) == [10, 20]
    stage.execute.recorded([1])
    assert (stage.execute.run_ids, stage.execute.locked_jobs()) == ([2], [LockedJob(20, exclusive=True)])
    stage.ends[2].set_result(SUCCESS)
    await stage.execute.wait_until_idle()
    stage.execute.recorded([2, 3])
    assert (stage.execute.running, stage.execute.run_ids, stage.execute.locked_jobs()) == (0, [], [])


async def test_a_job_that_allows_overlap_is_locked_once_for_each_run(stage: Stage) -> None:
    stage.execute.start([])
    for run_id in (1, 2):
        stage.ends[run_id] = asyncio.get_running_loop().create_future()
    stage.execute.start(some_task(run_id=run_id, job_id=5, exclusive=False) for run_id in (1, 2))
    assert stage.execute.locked_jobs() == [LockedJob(5, exclusive=False)] * 2
    stage.execute.stop_all(StopReason.CANCEL)
    await stage.execute.wait_until_idle()


async def test_idle_means_that_nothing_runs(stage: Stage) -> None:
    await stage.execute.wait_until_idle()
    await stage.begin(1, 2)
    idle = asyncio.create_task(stage.execute.wait_until_idle())
    stage.ends[1].set_result(SUCCESS)
    await asyncio.sleep(0.01)
    assert not idle.done()
    stage.ends[2].set_result(SUCCESS)
    await idle


async def test_idle_waits_for_what_was_started_meanwhile(stage: Stage) -> None:
    await stage.begin(1)
    idle = asyncio.create_task(stage.execute.wait_until_idle())
    await asyncio.sleep(0)
    await stage.begin(2)
    stage.ends[1].set_result(SUCCESS)
    await asyncio.sleep(0.01)
    assert not idle.done()
    stage.ends[2].set_result(SUCCESS)
    await idle


# Stops


@pytest.mark.parametrize(
    ("reason", "status", "words"),
    [
        (StopReason.CANCEL, Status.CANCELLED, "cancelled on request"),
        (StopReason.TIMEOUT, Status.TIMED_OUT, "it took longer than its timeout of 1:00:00"),
        (StopReason.DRAIN, Status.INTERRUPTED, "its worker was stopped"),
        (StopReason.LEASE, Status.LOST, "its worker could not renew the lease"),
    ],
)
async def test_each_reason_leads_to_its_state(stage: Stage, reason: StopReason, status: Status, words: str) -> None:
    await stage.begin(1)
    stage.execute.stop([1], reason)
    await stage.execute.wait_until_idle()
    outcome = stage.outcome(1)
    assert (outcome.status, outcome.reason, outcome.exit_code) == (status, words, 143)


async def test_what_the_command_made_of_its_stop_is_kept(stage: Stage) -> None:
    await stage.begin(1)
    output = Output("bye\n", 4)
    stage.ends[1].set_result(Outcome(Status.FAILED, error="exited with code 9", reason="left a child", output=output))
    stage.execute.stop([1], StopReason.CANCEL)
    await stage.execute.wait_until_idle()
    outcome = stage.outcome(1)
    assert (outcome.status, outcome.error, outcome.output) == (Status.CANCELLED, "exited with code 9", output)
    assert outcome.reason == "cancelled on request; left a child"


async def test_a_success_that_was_there_before_the_stop_was_heard_stays_one(stage: Stage) -> None:
    await stage.begin(1)
    stage.ends[1].set_result(SUCCESS)
    stage.execute.stop([1], StopReason.TIMEOUT, now=True)
    await stage.execute.wait_until_idle()
    assert stage.outcome(1) is SUCCESS


async def test_a_stop_before_the_start_prevents_the_start(stage: Stage) -> None:
    stage.start(1, 2)
    stage.execute.stop([1], StopReason.LEASE, now=True)
    stage.execute.stop([2], StopReason.CANCEL)
    await stage.execute.wait_until_idle()
    assert stage.begun == []
    assert [stage.outcome(run_id).status for run_id in (1, 2)] == [Status.LOST, Status.CANCELLED]


async def test_only_those_that_are_meant_are_stopped(stage: Stage) -> None:
    await stage.begin(1, 2, 3)
    stage.execute.stop([2], StopReason.LEASE, now=True)
    stage.execute.stop([3, 99], StopReason.CANCEL)
    await turns()
    assert [stage.outcome(run_id).status for run_id in (2, 3)] == [Status.LOST, Status.CANCELLED]
    stage.execute.stop([2, 3], StopReason.DRAIN)
    assert stage.outcome(2).status is Status.LOST
    stage.execute.stop_all(StopReason.DRAIN)
    await stage.execute.wait_until_idle()
    assert stage.outcome(1).status is Status.INTERRUPTED


async def test_a_run_is_stopped_at_its_timeout(stage: Stage) -> None:
    await stage.begin(1, timeout=timedelta(seconds=0.05))
    await stage.execute.wait_until_idle()
    assert stage.outcome(1).reason == "it took longer than its timeout of 0:00:00.050000"
    assert stage.outcome(1).status is Status.TIMED_OUT


async def test_the_timeout_ends_with_the_run(stage: Stage) -> None:
    await stage.begin(1, timeout=timedelta(seconds=0.02))
    stage.ends[1].set_result(Outcome(Status.FAILED))
    await asyncio.sleep(0.05)
    assert stage.outcome(1).status is Status.FAILED


async def test_each_run_has_its_own_timeout_whatever_order_they_come_in(stage: Stage) -> None:
    await stage.begin(1, timeout=timedelta(hours=1))
    await stage.begin(2, timeout=timedelta(seconds=0.06))
    await stage.begin(3, timeout=timedelta(seconds=0.03))
    await eventually_async(lambda: have_ended(stage, 3), message="the shortest is over")
    await eventually_async(lambda: have_ended(stage, 2, 3), message="the next is over")
    assert stage.execute.run_ids[0] == 1
    await stage.begin(4, timeout=timedelta(seconds=0.03))
    await eventually_async(lambda: have_ended(stage, 2, 3, 4), message="a later one is over")
    stage.ends[1].set_result(SUCCESS)
    await stage.execute.wait_until_idle()
    assert [stage.outcome(run_id).status for run_id in (1, 2, 3, 4)] == [Status.SUCCEEDED, *[Status.TIMED_OUT] * 3]


async def have_ended(stage: Stage, *run_ids: int) -> bool:
    return sorted(stage.execute.unrecorded) == list(run_ids)


# Faults of ours


@pytest.mark.parametrize(
    "error", [RuntimeError("a \0 bug"), SystemExit("x"), KeyboardInterrupt(), asyncio.CancelledError()]
)
async def test_a_runner_that_raises_is_a_failed_run_and_no_dead_worker(error: BaseException) -> None:
    async def broken(task: Task, stop: Stop, live: Live) -> Outcome:
        raise error

    execute = Execute({Kind.SHELL: broken}, lambda: None)
    execute.start([some_task(run_id=1)])
    await execute.wait_until_idle()
    outcome = execute.unrecorded[1].outcome
    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith(f"pgcron-runner itself failed: {type(error).__name__}(")
    assert "\0" not in outcome.error


async def test_so_is_a_kind_that_nobody_runs(stage: Stage) -> None:
    stage.execute.start([some_task(run_id=1, kind=Kind.SQL)])
    await stage.execute.wait_until_idle()
    assert stage.outcome(1).status is Status.FAILED


async def test_runs_of_a_worker_that_is_torn_down_have_an_end_too(stage: Stage) -> None:
    await stage.begin(1)
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == "run 1"]
    task.cancel()
    await stage.execute.wait_until_idle()
    assert stage.outcome(1).reason == "the worker was torn down"
    assert stage.execute.run_ids == [1]


# Kinds


@pytest.fixture
async def guard() -> AsyncIterator[Guard]:
    guard = Guard.start()
    yield guard
    await guard.close()


async def test_every_kind_has_its_runner(database: Database, guard: Guard) -> None:
    runners = Runners(sessions.Database(database.dsn, application_name="kinds"), WORKER, guard, WorkerSettings(slots=3))
    execute = Execute(runners.by_kind(), lambda: None)
    assert set(runners.by_kind()) == set(Kind)
    thread = {"isolation": "thread"}
    tasks = [
        claimed_task(database, "echo out", name="shell", kind=Kind.SHELL),
        claimed_task(database, "select 3", name="sql"),
        claimed_task(database, "tests.execution.functions:where", name="python", kind=Kind.PYTHON, args=thread),
        claimed_task(database, "https://localhost", name="http", kind=Kind.HTTP),
    ]
    execute.start(tasks)
    await execute.wait_until_idle()
    await runners.close()
    found = {finished.task.job_name: finished.outcome.status for finished in execute.unrecorded.values()}
    expected = dict.fromkeys(("shell", "sql", "python"), Status.SUCCEEDED)
    assert found == expected | {"http": Status.FAILED}
    left = "select count(*) from pg_stat_activity where application_name = 'kinds'"
    eventually(lambda: database.value(left) == 0, message="no session is left")


async def test_a_hundred_runs_on_the_loop_are_each_told_once(guard: Guard) -> None:
    heard: list[None] = []
    runner = PythonRunner(guard, threads=1)
    execute = Execute({Kind.PYTHON: runner.run}, lambda: heard.append(None))
    arguments = {"isolation": "thread"}
    target = "tests.execution.functions:echo_async"
    execute.start(some_task(target, run_id=number, kind=Kind.PYTHON, args=arguments) for number in range(100))
    await execute.wait_until_idle()
    runner.close()
    assert {finished.outcome.status for finished in execute.unrecorded.values()} == {Status.SUCCEEDED}
    assert (len(heard), len(execute.unrecorded)) == (100, 100)


# Texts that the database may refuse (O15)


@pytest.fixture(scope="module", params=["UTF8", "LATIN1"])
def encoded_database(request: pytest.FixtureRequest, server: Server) -> Iterator[Database]:
    """A database of each encoding."""
    name = f"strict_{uuid4().hex[:8]}"
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"create database {name} template template0 encoding '{request.param}' locale 'C'")
    database = Database(server, name)
    try:
        migrate_database(database.dsn)
        yield database
    finally:
        database.close()
        drop_database(server, name)


@pytest.fixture
def strict_database(encoded_database: Database) -> Iterator[Database]:
    """The same, with nothing in it."""
    yield encoded_database
    encoded_database.execute("delete from pgcron.runs")
    encoded_database.execute("delete from pgcron.jobs")


@pytest.fixture
async def finish(strict_database: Database) -> AsyncIterator[Finish]:
    target = sessions.Database(strict_database.dsn)
    record, control = Session(target, Purpose.RECORD), Session(target, Purpose.CONTROL)
    yield Finish(record, control, WORKER)
    await record.close()
    await control.close()


async def finished(database: Database, finish: Finish, task: Task, outcome: Outcome) -> str | None:
    """Records it beside an ordinary run; the state that the database then has."""
    neighbour = claimed_task(database, "true", name=f"beside {task.job_name}", kind=Kind.SHELL)
    batch = [Finished(task, outcome), Finished(neighbour, Outcome(Status.SUCCEEDED, exit_code=0))]
    assert await finish.step(batch) == set()
    assert recorded_status(database, neighbour) == "succeeded"
    return recorded_status(database, task)


@pytest.mark.parametrize(
    ("kind", "command", "args"),
    [
        (Kind.SHELL, r"printf 'a\0b\377c \360\237\216\211 \\u0000'; exit 3", {}),
        (Kind.SHELL, r"printf 'x\360\237\216\211'", {}),
        (Kind.PYTHON, "tests.execution.functions:fails", {"how": "text"}),
        (Kind.PYTHON, "tests.execution.functions:fails", {"how": "text", "isolation": "thread"}),
        (Kind.PYTHON, "tests.execution.functions:values", {"which": "nul"}),
        (Kind.PYTHON, "tests.execution.functions:values", {"which": "surrogate", "isolation": "thread"}),
        (Kind.PYTHON, "tests.execution.functions:values", {"which": "emoji", "isolation": "thread"}),
        (Kind.PYTHON, "tests.execution.functions:values", {"which": "nan", "isolation": "thread"}),
    ],
)
async def test_no_text_keeps_a_run_from_its_end(
    strict_database: Database, finish: Finish, guard: Guard, kind: Kind, command: str, args: dict[str, Any]
) -> None:
    task = claimed_task(strict_database, command, kind=kind, args=args)
    if kind is Kind.SHELL:
        outcome = await run_shell(task, guard, Stop(), Live())
    else:
        runner = PythonRunner(guard, threads=1)
        outcome = await runner.run(task, Stop(), Live())
        runner.close()
    assert await finished(strict_database, finish, task, outcome) == outcome.status.value
    [(exit_code, output)] = strict_database.rows(
        "select exit_code, output from pgcron.runs where id = %s", (task.run_id,)
    )
    assert exit_code == outcome.exit_code
    if "377" in command and strict_database.value("show server_encoding") == "UTF8":
        assert output == "a␀b\\xffc 🎉 \\u0000"


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Status.FAILED, exit_code=1, error="NUL \0 itself"),
        Outcome(Status.FAILED, exit_code=1, error="half \ud800 a pair"),
        Outcome(Status.FAILED, exit_code=1, reason="🎉"),
        Outcome(Status.SUCCEEDED, exit_code=0, result={"a": "\0"}),
        Outcome(Status.SUCCEEDED, exit_code=0, result=float("nan")),
        Outcome(Status.SUCCEEDED, exit_code=0, result="\ud800"),
        Outcome(Status.SUCCEEDED, exit_code=0, result={"🎉": "🎉"}),
        Outcome(Status.TIMED_OUT, exit_code=143, output=Output("🎉 \0 \ud800", 9)),
    ],
)
async def test_nor_does_one_that_a_runner_has_let_through(
    strict_database: Database, finish: Finish, outcome: Outcome
) -> None:
    task = claimed_task(strict_database, "true", kind=Kind.SHELL)
    assert await finished(strict_database, finish, task, outcome) == outcome.status.value
    assert strict_database.value("select exit_code from pgcron.runs where id = %s", (task.run_id,)) == outcome.exit_code
