"""Cases O03, O15, O17, O18 and O20 with real workers: from the row of the job to the row of the run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from datetime import timedelta

import pytest

from tests.faults.processes import descendants, marked
from tests.faults.stage import Stage

pytestmark = pytest.mark.faults


def end_of(stage: Stage, run_id: int) -> tuple[object, ...]:
    """Exit code, error, reason and output of a run."""
    query = "select exit_code, error, reason, output from pgcron.runs where id = %s"
    return stage.database.rows(query, [run_id])[0]


def seconds_of(stage: Stage, run_id: int) -> float:
    """How long it took."""
    query = "select extract(epoch from finished_at - started_at)::float8 from pgcron.runs where id = %s"
    return float(stage.database.value(query, [run_id]))


def test_o03_a_killed_workers_command_never_runs_beside_its_second_attempt(stage: Stage) -> None:
    marker = f"{stage.folder}-o03"
    stage.add_job("twice", "shell", f"sh -c 'sleep 300 & sleep 300' {marker}.$PGCRON_RUN_ID; true")
    first = stage.ready(lease="2s")
    run_id = stage.run_now("twice")
    stage.wait_for(lambda: marked(f"{marker}.{run_id}"), "the first attempt is there")
    children = "select count(*) from pgcron.runs where status = 'running'"
    assert stage.database.value(children) == 1
    stage.ready(lease="2s")

    first.kill()

    again = stage.wait_attempt("twice", 2, "running")
    stage.wait_for(lambda: marked(f"{marker}.{again.id}"), "the second attempt is there")
    assert marked(f"{marker}.{run_id}") == []
    assert stage.run(run_id).status == "lost"
    stage.database.execute("update pgcron.runs set cancel_requested_at = now() where id = %s", [again.id])
    stage.wait_status(again.id, "cancelled")
    assert marked(marker) == []


def test_o15_no_text_keeps_a_run_from_being_closed(stage: Stage) -> None:
    shows = {
        r"printf 'a\0b\377c'": (0, "a␀b\\xffc"),
        r"printf 'a\0b\377c' >&2; exit 3": (3, "a␀b\\xffc"),
        r"printf '\\u0000 \\ud800'": (0, "\\u0000 \\ud800"),
        r"printf '\355\240\200 \360\237\230\200 \303'": (0, "\\xed\\xa0\\x80 😀 \\xc3"),
        "head -c 300000 /dev/urandom": (0, None),
        'printf \'{"a": "\\\\u0000"}\' > $PGCRON_RESULT; printf \'{"a": NaN}\' > $PGCRON_STATE': (0, ""),
    }
    worker = stage.ready()
    for number, (command, (code, text)) in enumerate(shows.items()):
        stage.add_job(f"bytes-{number}", "shell", command, max_attempts=1)
        run_id = stage.run_now(f"bytes-{number}")
        run = stage.wait_status(run_id, "succeeded", "failed")
        exit_code, error, _, output = end_of(stage, run_id)
        assert exit_code == code
        assert text is None or (output or "") == text
        if "PGCRON_RESULT" in command:
            assert run.status == "failed"
            assert "PGCRON_" in str(error), "what cannot be kept is said"
    assert worker.events("step_failed") == []


@pytest.mark.parametrize(
    "command", ["sleep 600 {0} & echo started", "(setsid sh -c '(sleep 600 {0} &)' &); echo started"]
)
def test_o17_a_daemon_that_keeps_the_output_open_holds_neither_run_nor_slot(stage: Stage, command: str) -> None:
    marker = "0.17" + str(abs(hash(stage.folder)))
    stage.add_job("daemon", "shell", command.format(marker), timeout=timedelta(seconds=30), max_attempts=1)
    stage.ready("--slots", "1")
    for _ in range(2):
        run_id = stage.run_now("daemon")
        stage.wait_status(run_id, "succeeded", "failed", "timed_out")
        assert end_of(stage, run_id) == (
            0,
            None,
            "left processes running in the background; they were killed",
            "started\n",
        )
        assert seconds_of(stage, run_id) < 30, "it did not wait for its timeout"
        assert marked(marker) == []


STUBBORN = (
    "trap '' TERM; sh -c 'while :; do sleep 0.1; done' {0} & kill -STOP $!;"
    " (setsid sh -c 'while :; do sleep 0.1; done' {0} &); echo up; while :; do sleep 0.1; done"
)


def test_o18_who_ignores_term_is_stopped_or_hides_is_killed_at_its_timeout(stage: Stage) -> None:
    marker = f"{stage.folder}-o18"
    two = timedelta(seconds=2)
    stage.add_job("stubborn", "shell", STUBBORN.format(marker), timeout=two, kill_grace=two, max_attempts=1)
    worker = stage.ready(lease="4s")
    run_id = stage.run_now("stubborn")
    stage.wait_for(lambda: len(marked(marker)) >= 2, "they are there")
    beats = "select beat from pgcron.workers where id = %s"
    before = stage.database.value(beats, [worker.ids[0]])
    stage.wait_status(run_id, "timed_out")
    assert seconds_of(stage, run_id) >= 4
    assert stage.database.value(beats, [worker.ids[0]]) >= before + 3, "the lease was kept all the while"
    assert marked(marker) == []
    exit_code, error, reason, output = end_of(stage, run_id)
    assert (exit_code, error) == (137, "killed by SIGKILL (signal 9)")
    assert str(reason).startswith("it took longer than its timeout of 0:00:02")
    assert output == "up\n"
    assert worker.events("lease_not_renewed") == []


def test_o18_a_worker_that_is_told_twice_to_stop_leaves_nothing_of_it(stage: Stage) -> None:
    marker = f"{stage.folder}-o18"
    stage.add_job("stubborn", "shell", STUBBORN.format(marker), kill_grace=timedelta(seconds=1), max_attempts=1)
    worker = stage.ready()
    run_id = stage.run_now("stubborn")
    stage.wait_for(lambda: len(marked(marker)) >= 2, "they are there")
    worker.terminate()
    stage.wait_for(lambda: worker.events("worker_draining"), "it drains")
    worker.terminate()
    assert worker.wait() == 0
    assert stage.run(run_id).status == "interrupted"
    assert end_of(stage, run_id)[:2] == (137, "killed by SIGKILL (signal 9)")
    assert marked(marker) == []


def test_o20_the_text_of_a_job_reaches_the_shell_unchanged(stage: Stage) -> None:
    texts = [
        "date -u -d @0 +%Y-%m-%d",
        'printf \'%s\\n\' "a b" \'c"d\' "$HOME"',
        "echo one\necho two\n",
        "cat <<'END'\n$not %(expanded)s {0} %%\nEND\n",
        "echo back \\",
        "- no command",
        f"printf %s {shlex.quote('x' * 100_000)} | wc -c",
        "echo 'ünï 😀' \"$(printf '%%d')\" `echo $((1+2))` #%",
    ]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/of-job"}
    stage.ready()
    for number, text in enumerate(texts):
        direct = subprocess.run(
            ["/bin/sh", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        )
        stage.add_job(f"text-{number}", "shell", text, max_attempts=1)
        stage.database.execute(
            """update pgcron.jobs set env = '{"HOME": "/home/of-job"}' where name = %s""", [f"text-{number}"]
        )
        run_id = stage.run_now(f"text-{number}")
        stage.wait_status(run_id, "succeeded", "failed")
        exit_code, _, _, output = end_of(stage, run_id)
        assert (exit_code, output) == (direct.returncode, direct.stdout.decode())


def test_o20_a_text_that_is_too_long_fails_alone(stage: Stage) -> None:
    stage.add_job("long", "shell", "true " + "x" * 200_000, max_attempts=1)
    stage.add_job("short", "shell", "echo fine", max_attempts=1)
    stage.ready()
    long, short = stage.run_now("long"), stage.run_now("short")
    stage.wait_status(long, "failed")
    assert str(end_of(stage, long)[1]).startswith("launch failed: the command (200,0")
    stage.wait_status(short, "succeeded")


def test_a_run_that_uses_too_much_memory_fails_and_says_so_in_its_row(stage: Stage) -> None:
    eat = f"{sys.executable} -I -S -c 'import time; kept = b\"x\" * (200 << 20); time.sleep(300)'"
    stage.add_job("greedy", "shell", f"{eat} & {eat} & wait", max_attempts=1)
    stage.database.execute("update pgcron.jobs set memory_limit_mb = 300")
    worker = stage.ready()
    run_id = stage.run_now("greedy")
    assert stage.wait_status(run_id, "failed", "succeeded").status == "failed"
    _, _, reason, _ = end_of(stage, run_id)
    assert re.fullmatch(r"it used \d+ MB of memory, more than its limit of 300 MB", str(reason))
    assert [process for process in descendants(worker.pid) if "kept =" in process.command] == []
