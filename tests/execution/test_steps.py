"""The files through which a command talks of itself: real shells write them, and what they say is in the outcome."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.processes import Guard
from pgcron_runner.execution.scratch import Scratch
from pgcron_runner.execution.shell import run_shell
from pgcron_runner.execution.steps import BadStepError, next_run_of, parse_next_run, parse_progress, step_files
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import NextRun, Outcome, Status, StopReason
from tests.execution.tasks import some_task
from tests.support.waiting import eventually_async


@pytest.fixture
async def guard() -> AsyncIterator[Guard]:
    guard = Guard.start()
    yield guard
    await guard.close()


async def run(guard: Guard, command: str, **changes: Any) -> Outcome:
    return await run_shell(some_task(command, **changes), guard, Stop(), Live())


async def test_a_command_says_all_four_things(guard: Guard) -> None:
    outcome = await run(
        guard,
        """echo '10 begun' >> "$PGCRON_PROGRESS"; echo '40 copied users' >> "$PGCRON_PROGRESS"
           echo '{"cursor": 40}' > "$PGCRON_STATE"
           echo '{"rows": 17}' > "$PGCRON_RESULT"
           echo '{"after": "10s"}' >> "$PGCRON_NEXT"
           echo '{"job": "report", "after": 1.5, "args": {"day": "2027-01-31"}}' >> "$PGCRON_NEXT" """,
    )
    assert outcome.status is Status.SUCCEEDED, outcome
    assert outcome.progress == {"percent": 40, "text": "copied users"}
    assert outcome.state == {"cursor": 40}
    assert outcome.result == {"rows": 17}
    assert outcome.next_runs == (
        NextRun(after=timedelta(seconds=10)),
        NextRun("report", timedelta(seconds=1.5), {"day": "2027-01-31"}),
    )


async def test_a_command_that_says_nothing_changes_nothing(guard: Guard) -> None:
    outcome = await run(guard, "true", state={"cursor": 7})
    assert outcome == Outcome(Status.SUCCEEDED, exit_code=0, output=outcome.output)


async def test_a_command_finds_what_was_saved_before(guard: Guard) -> None:
    outcome = await run(guard, 'cat "$PGCRON_STATE"', state={"cursor": 7, "name": "ß"})
    assert outcome.output is not None
    assert json.loads(outcome.output.text) == {"cursor": 7, "name": "ß"}
    outcome = await run(guard, 'ls -A "$(dirname "$PGCRON_STATE")"')
    assert outcome.output is not None
    assert outcome.output.text == ""


async def test_what_is_said_is_known_while_the_command_runs(guard: Guard, tmp_path: Path) -> None:
    live, stop = Live(), Stop()
    command = """echo '40 half' >> "$PGCRON_PROGRESS"; printf '{"cur' > "$PGCRON_STATE"; touch {up}
                 while ! test -e {go}; do sleep 0.01; done
                 printf '{"cursor": 1}' > "$PGCRON_STATE"; touch {up2}; sleep 600"""
    up, go, up2 = tmp_path / "up", tmp_path / "go", tmp_path / "up2"
    for name, path in (("{up}", up), ("{go}", go), ("{up2}", up2)):
        command = command.replace(name, str(path))
    running = asyncio.ensure_future(run_shell(some_task(command), guard, stop, live))
    await eventually_async(_exists(up))
    said = live.news()
    assert said is not None
    # The state is half written at this moment.
    assert (said.progress, said.state) == ({"percent": 40, "text": "half"}, None)
    go.touch()
    await eventually_async(_exists(up2))
    said = live.news()
    assert said is not None
    assert (said.progress, said.state) == (None, {"cursor": 1})
    stop.request(StopReason.TIMEOUT, now=True)
    outcome = await running
    # What was saved by a run that is stopped is there for the next attempt.
    assert (outcome.status, outcome.state) == (Status.FAILED, {"cursor": 1})


def _exists(path: Path) -> Callable[[], Awaitable[bool]]:
    async def exists() -> bool:
        return os.path.exists(path)  # noqa: ASYNC240 # a local file

    return exists


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ('echo "{oops" > "$PGCRON_STATE"', "PGCRON_STATE does not hold JSON: "),
        ('echo "oops" > "$PGCRON_RESULT"', "PGCRON_RESULT does not hold JSON: "),
        ('echo NaN > "$PGCRON_RESULT"', "PGCRON_RESULT does not hold JSON: "),
        ('printf "\\n{}\\n[1]\\n" > "$PGCRON_NEXT"', "PGCRON_NEXT line 3 is not an object with job, after, args"),
        ('echo "{" > "$PGCRON_NEXT"', "PGCRON_NEXT line 1 is not JSON: "),
        ('head -c 2000000 /dev/zero | tr "\\0" 1 > "$PGCRON_STATE"', "PGCRON_STATE is larger than 1,048,576 bytes"),
        ('mkdir "$PGCRON_STATE"', "PGCRON_STATE is not an ordinary file any more"),
        ('mkfifo "$PGCRON_STATE"', "PGCRON_STATE is not an ordinary file any more"),
        ('ln -s /dev/zero "$PGCRON_PROGRESS"', "Too many levels of symbolic links"),
        ('ln -s /etc/passwd "$PGCRON_RESULT"', "Too many levels of symbolic links"),
        ('for i in $(seq 1001); do echo "{}"; done > "$PGCRON_NEXT"', "PGCRON_NEXT asks for 1,001 runs"),
    ],
)
async def test_what_cannot_be_read_makes_the_run_fail_in_words(guard: Guard, command: str, words: str) -> None:
    outcome = await run(guard, command)
    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert words in outcome.error
    assert outcome.exit_code == 0
    failed = await run(guard, f"{command}; exit 3")
    assert (failed.status, failed.exit_code, failed.error) == (Status.FAILED, 3, "exited with code 3")
    assert failed.reason is not None
    assert words in failed.reason


async def test_the_folder_is_gone_with_the_run(guard: Guard) -> None:
    outcome = await run(guard, 'dirname "$PGCRON_STATE"; touch "$(dirname "$PGCRON_STATE")/other"')
    assert outcome.output is not None
    folder = Path(outcome.output.text.strip())
    assert folder.is_absolute()
    assert not os.path.exists(folder)  # noqa: ASYNC240 # a local file


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        ("40 copied", {"percent": 40, "text": "copied"}),
        ("40", {"percent": 40}),
        ("40% copied", {"percent": 40, "text": "copied"}),
        ("12.5 copied", {"percent": 12.5, "text": "copied"}),
        ("101 dalmatians", {"text": "101 dalmatians"}),
        ("-1", {"text": "-1"}),
        ("nan", {"text": "nan"}),
        ("copying", {"text": "copying"}),
        ("40 nul\0", {"percent": 40, "text": "nul␀"}),
    ],
)
def test_a_line_of_progress_is_a_percentage_and_words(line: str, progress: dict[str, Any]) -> None:
    assert parse_progress(line) == progress


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"job": ""}, "job is '', not the name of a job"),
        ({"job": 4}, "job is 4, not the name of a job"),
        ({"args": [1]}, "args is [1], not a JSON object"),
        ({"after": "5"}, "after is '5', not a duration of up to ten years such as \"10s\""),
        ({"after": -1}, "after is -1, not a duration"),
        ({"after": 1e300}, "after is 1e+300, not a duration"),
        ({"after": None}, "after is None, not a duration"),
        ({"when": "now"}, "is not an object with job, after, args"),
        ("now", "is not an object with job, after, args"),
    ],
)
def test_a_next_run_that_cannot_be_says_what_would_be_right(asked: Any, words: str) -> None:
    with pytest.raises(BadStepError) as refused:
        next_run_of(asked, where="PGCRON_NEXT line 1")
    assert str(refused.value).startswith("PGCRON_NEXT line 1")
    assert words in str(refused.value)


def test_a_next_run_may_be_due_at_once() -> None:
    assert parse_next_run("{}", where="x") == parse_next_run('{"after": "0s"}', where="x") == NextRun()


def test_the_files_are_for_their_owner_alone() -> None:
    scratch = Scratch()
    with step_files(some_task(), Live(), scratch) as files:
        assert files.folder.stat().st_mode & 0o777 == 0o700
        assert scratch.path.stat().st_mode & 0o777 == 0o711
        assert files.folder.parent == scratch.path
    scratch.remove()
    assert not scratch.path.exists()


def test_a_scratch_folder_that_somebody_tidied_away_is_made_again() -> None:
    scratch = Scratch()
    scratch.path.rmdir()
    with step_files(some_task(), Live(), scratch) as files:
        assert files.folder.parent == scratch.path
        assert scratch.path.stat().st_mode & 0o777 == 0o711
    scratch.remove()
