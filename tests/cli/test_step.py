"""`pgcron-runner step`, called from the shell of a job as its author would."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner.execution.live import Live
from pgcron_runner.execution.processes import Guard
from pgcron_runner.execution.shell import run_shell
from pgcron_runner.execution.stop import Stop
from pgcron_runner.model import NextRun, Outcome, Status
from tests.cli.conftest import Cli
from tests.execution.tasks import some_task, text_of

ROOT = str(Path(__file__).resolve().parents[2])
STEP = f'step() {{ {shlex.quote(sys.executable)} -m pgcron_runner step "$@"; }}\n'


@pytest.fixture
async def guard() -> AsyncIterator[Guard]:
    guard = Guard.start()
    yield guard
    await guard.close()


async def run(guard: Guard, commands: str, **changes: Any) -> Outcome:
    """A shell job in which `step` is the program."""
    task = some_task(STEP + commands, env={"PYTHONPATH": ROOT}, **changes)
    return await run_shell(task, guard, Stop(), Live())


async def test_a_shell_says_all_that_python_does(guard: Guard) -> None:
    outcome = await run(
        guard,
        """step progress 10 begun
           step progress 40% copied users
           step save cursor=123 table=users
           step save 'names=["a", "b"]' empty= flag=true text=12abc equals=a=b nan=NaN
           step next --after 10s
           step next --job report --args '{"day": "2027-01-31"}'
           step result '{"rows": 17}'""",
        state={"before": 1},
    )
    assert (outcome.status, text_of(outcome)) == (Status.SUCCEEDED, "")
    assert outcome.progress == {"percent": 40, "text": "copied users"}
    assert outcome.state == {
        "before": 1,
        "cursor": 123,
        "table": "users",
        "names": ["a", "b"],
        "empty": "",
        "flag": True,
        "text": "12abc",
        "equals": "a=b",
        "nan": "NaN",
    }
    assert outcome.result == {"rows": 17}
    assert outcome.next_runs == (
        NextRun(after=timedelta(seconds=10)),
        NextRun("report", timedelta(0), {"day": "2027-01-31"}),
    )


async def test_what_was_saved_is_printed_as_a_shell_wants_it(guard: Guard) -> None:
    outcome = await run(
        guard,
        """step get cursor; step get name; step get list; step get none --default 0; step get none --default ''
           step get; step arg day; step arg hour --default 9; step arg""",
        state={"cursor": 7, "name": "Jürgen 🎉", "list": [1, {"a": None}]},
        args={"day": "2027-01-31", "umask": "077"},
    )
    assert text_of(outcome).split("\n") == [
        "7",
        "Jürgen 🎉",
        '[1, {"a": null}]',
        "0",
        "",
        '{"cursor": 7, "name": "Jürgen 🎉", "list": [1, {"a": null}]}',
        "2027-01-31",
        "9",
        '{"day": "2027-01-31"}',
        "",
    ]


async def test_what_is_not_there_is_told_by_the_exit_code(guard: Guard) -> None:
    outcome = await run(guard, "step get cursor || echo $?; step arg day || echo $?; step get")
    assert text_of(outcome).splitlines() == [
        "Error: state: there is no 'cursor', and no --default.",
        "1",
        "Error: args: there is no 'day', and no --default.",
        "1",
        "{}",
    ]


async def test_a_state_may_be_replaced_or_forgotten(guard: Guard) -> None:
    assert (await run(guard, "step save --replace cursor=1", state={"old": 1})).state == {"cursor": 1}
    assert (await run(guard, "step save --replace", state={"old": 1})).state == {}


async def test_many_may_save_at_once(guard: Guard) -> None:
    outcome = await run(guard, "for n in 1 2 3 4 5 6; do step save part$n=true & done; wait")
    assert outcome.state == {f"part{number}": True for number in range(1, 7)}


async def test_what_the_shell_writes_itself_counts_as_well(guard: Guard) -> None:
    outcome = await run(
        guard,
        """step progress 10 begun; echo '40 copied' >> "$PGCRON_PROGRESS"
           echo '{"cursor": 1}' > "$PGCRON_STATE"; step save table=users
           echo '{"after": "10s"}' >> "$PGCRON_NEXT"; step next""",
    )
    assert outcome.progress == {"percent": 40, "text": "copied"}
    assert outcome.state == {"cursor": 1, "table": "users"}
    assert outcome.next_runs == (NextRun(after=timedelta(seconds=10)), NextRun())


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("progress ten", "progress: 'ten' is not a number from 0 to 100. For example: 40"),
        ("save", "save: nothing is named. For example: pgcron-runner step save cursor=123"),
        ("save cursor", "save: 'cursor' is not NAME=VALUE. For example: cursor=123"),
        ("next --after 10", "delay: '10' has no unit. For example: 10s"),
        ("next --args '[1]'", "args: '[1]' is not a JSON object. For example: '{\"day\": \"2027-01-31\"}'"),
        ("next --args day", "args: 'day' is not JSON. For example: '{\"day\": \"2027-01-31\"}'"),
        ("result rows", "result: 'rows' is not JSON. For example: '{\"rows\": 12}'"),
        ("result NaN", "result: 'NaN' is not JSON. For example: '{\"rows\": 12}'"),
        ("next --later", "Unrecognized arguments: --later. See: pgcron-runner step --help"),
    ],
)
async def test_wrong_use_is_told_in_words(guard: Guard, command: str, error: str) -> None:
    outcome = await run(guard, f"step {command}; echo $?")
    assert text_of(outcome).splitlines() == [f"Error: {error}", "2"]


@pytest.mark.parametrize("arguments", [("save", "a=1"), ("get",), ("progress", "1"), ("result", "1"), ("next",)])
def test_outside_of_a_run_it_says_so(offline: Cli, arguments: tuple[str, ...]) -> None:
    result = offline("step", *arguments)
    expected = "Error: There is no run here: `step` is for the command of a job, where PGCRON_RUN_ID is set.\n"
    assert (result.code, result.out, result.err) == (2, "", expected)


def test_it_is_in_the_help_and_has_one_with_examples(offline: Cli) -> None:
    assert "step" in [line.split()[0] for line in offline("--help").lines if line.startswith("  ")]
    help_text = offline("step", "--help")
    assert help_text.code == 0
    assert "pgcron-runner step save cursor=$cursor" in help_text.out
    assert """echo '40 copied' >> "$PGCRON_PROGRESS\"""" in help_text.out
    assert max(len(line) for line in help_text.lines) <= 80


def test_it_loads_nothing_that_a_loop_would_have_to_wait_for() -> None:
    code = (
        "import sys; sys.argv = ['pgcron-runner', 'step', 'get', 'a', '--default', '1']\n"
        "from pgcron_runner.cli import main\n"
        "try: main()\nfinally: print(sorted(sys.modules), file=sys.stderr)"
    )
    names = ("ARGS", "STATE", "PROGRESS", "RESULT", "NEXT")
    environment = {f"PGCRON_{name}": "/nonexistent" for name in names} | {
        "PGCRON_RUN_ID": "1",
        "PGCRON_JOB": "x",
        "PGCRON_ATTEMPT": "1",
        "PGCRON_SCHEDULED_FOR": "2027-01-31T09:00:00Z",
        "PYTHONPATH": ROOT,
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == 1
    loaded = set(done.stderr.replace("'", "").strip("[]\n").split(", "))
    assert not loaded & {"typer", "click", "rich", "typing", "inspect", "asyncio", "psycopg", "structlog", "croniter"}
