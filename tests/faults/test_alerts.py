"""Alerts from real workers to real servers, from the first failure to the end of it, whenever a worker is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.faults.processes import descendants
from tests.faults.stage import Stage
from tests.support.listeners import Hook, Mailbox, answering, hook, mailbox

pytestmark = pytest.mark.faults


@pytest.fixture
def pager() -> Iterator[Hook]:
    with hook() as made:
        yield made


@pytest.fixture
def mails() -> Iterator[Mailbox]:
    with mailbox() as made:
        yield made


def add_channel(stage: Stage, name: str, target: str, **route: Any) -> None:
    """With a route of its own where one is given."""
    channel = stage.database.value(
        "insert into pgcron.channels (name, target) values (%s, %s) returning id", (name, target)
    )
    if route:
        stage.database.execute(
            "insert into pgcron.routes (channel_id, min_failures, repeat_every) values (%s, %s, %s)",
            (channel, route.get("min_failures", 1), route.get("repeat_every")),
        )


def fail(stage: Stage, job: str = "backup") -> None:
    stage.wait_status(stage.run_now(job), "failed")


def actions(pager: Hook) -> list[str]:
    return [posted.json["event_action"] for posted in pager.posted]


def unsent(stage: Stage) -> int:
    return int(stage.database.value("select count(*) from pgcron.alerts where sent_at is null"))


def make_due(stage: Stage) -> None:
    """As if the time had passed after which a claim of alerts ends."""
    stage.database.execute("update pgcron.alerts set send_at = now() where sent_at is null")


@pytest.mark.slow
def test_the_story_of_a_job_that_fails_and_works_again(stage: Stage, pager: Hook, mails: Mailbox) -> None:
    add_channel(
        stage, "mail", f"mailto://127.0.0.1:{mails.port}?from=cron@example.org&to=ops@example.org&mode=insecure"
    )
    add_channel(stage, "pager", f"pagerduty://KEY?url=http://{pager.address}/", min_failures=3, repeat_every="1 minute")
    stage.add_job("backup", "shell", "echo no space left; exit 3", max_attempts=1)
    stage.ready()

    fail(stage)
    stage.wait_for(lambda: len(mails.mails) == 1, "the quiet channel hears of the first failure")
    fail(stage)
    assert actions(pager) == []
    fail(stage)
    stage.wait_for(lambda: actions(pager) == ["trigger"], "the third failure is escalated")
    for _ in range(2):
        fail(stage)
    assert "no space left" in pager.posted[0].body.decode()

    aged = "update pgcron.alerts set created_at = created_at - interval '1 hour'"
    stage.database.execute(aged)
    stage.wait_for(lambda: actions(pager) == ["trigger"] * 2, "it is said again")
    acknowledge = ("incident", "ack", "1", "--by", "ann", "--dsn", stage.database.dsn)
    command = [sys.executable, "-m", "pgcron_runner", *acknowledge]
    assert subprocess.check_output(command, text=True) == "Incident 1 is taken on by ann.\n"
    stage.wait_for(lambda: actions(pager)[2:] == ["acknowledge"], "it is taken on")
    stage.database.execute(aged)
    watched = stage.database.value("select watched_at from pgcron.watch")
    stage.wait_for(
        lambda: stage.database.value("select watched_at > %s from pgcron.watch", (watched,)), "somebody looks again"
    )
    assert unsent(stage) == 0

    stage.database.execute("update pgcron.jobs set command = 'true'")
    stage.wait_status(stage.run_now("backup"), "succeeded")
    stage.wait_for(lambda: actions(pager)[3:] == ["resolve"], "it works again")
    stage.wait_for(lambda: len(mails.mails) == 2, "the quiet channel hears of that, too")
    stage.wait_for(lambda: unsent(stage) == 0, "all is marked")
    assert len({posted.json["dedup_key"] for posted in pager.posted}) == 1
    assert stage.database.rows("select failures, closed_at is not null from pgcron.incidents") == [(5, True)]


def test_killed_before_the_end_is_committed(stage: Stage, pager: Hook) -> None:
    add_channel(stage, "ops", f"webhook+http://{pager.address}/", min_failures=2)
    stage.add_job("backup", "shell", "false", max_attempts=1)
    worker = stage.ready(lease="2s")
    fail(stage)
    with psycopg.connect(stage.database.dsn) as person:
        person.execute("select from pgcron.incidents for update")
        run_id = stage.run_now("backup")
        stage.wait_for(
            lambda: stage.database.value("select count(*) from pg_stat_activity where wait_event_type = 'Lock'"),
            "the end waits for its incident",
        )
        worker.kill()
    stage.ready(lease="2s")
    run = stage.wait_status(run_id, "failed", "lost")
    stage.wait_for(lambda: pager.posted, "it is told")
    stage.wait_for(lambda: unsent(stage) == 0, "it is marked")
    assert [facts["event"] for facts in pager.posted[0].json["alerts"]] == [run.status]
    assert len(pager.posted) == 1


def test_killed_after_the_end_is_committed_and_before_it_is_told(stage: Stage, pager: Hook) -> None:
    add_channel(stage, "ops", f"webhook+http://{pager.address}/")
    stage.database.execute(
        "update pgcron.channels set timezone = 'UTC', quiet_from = localtime - interval '1 hour',"
        " quiet_until = localtime + interval '1 hour'"
    )
    stage.add_job("backup", "shell", "false", max_attempts=1)
    worker = stage.ready()
    fail(stage)
    worker.kill()
    assert (unsent(stage), pager.posted) == (1, [])
    stage.database.execute("update pgcron.channels set quiet_from = null, quiet_until = null")
    stage.ready()
    stage.wait_for(lambda: unsent(stage) == 0, "it is told")
    assert len(pager.posted) == 1


def test_killed_while_it_is_told_tells_once_more_and_says_so(stage: Stage, pager: Hook) -> None:
    pager.answer = pager.hang
    add_channel(stage, "ops", f"webhook+http://{pager.address}/")
    stage.add_job("backup", "shell", "false", max_attempts=1)
    worker = stage.ready()
    fail(stage)
    stage.wait_for(lambda: pager.posted, "the server has it and does not answer")
    worker.kill()
    pager.answer = None
    make_due(stage)
    stage.ready()
    stage.wait_for(lambda: unsent(stage) == 0, "it is told again")
    first, second = pager.posted
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert ["resent" in posted.json["alerts"][0] for posted in (first, second)] == [False, True]


def test_bad_channels_delay_no_other_and_no_run(stage: Stage, pager: Hook) -> None:
    """Ten that never answer, one that drips, one that says 429, one that is not there; and the good one is the last."""
    pager.answer = pager.hang
    with hook() as dripping, hook() as busy, hook() as good:
        dripping.answer, busy.answer = dripping.drip, answering(429, Retry_After="60")
        for number in range(10):
            add_channel(stage, f"hangs-{number}", f"webhook+http://{pager.address}/{number}")
        add_channel(stage, "drips", f"webhook+http://{dripping.address}/")
        add_channel(stage, "busy", f"webhook+http://{busy.address}/")
        add_channel(stage, "gone", "webhook+http://127.0.0.1:1/")
        add_channel(stage, "good", f"webhook+http://{good.address}/")
        stage.add_job("backup", "shell", "false", max_attempts=1)
        stage.add_sql("report")
        worker = stage.ready("--drain-timeout", "5s")
        fail(stage)
        stage.wait_for(lambda: good.posted, "the good channel is told")
        # None of those that hang has been given up meanwhile.
        told = "select count(*) from pgcron.alerts a join pgcron.channels c on c.id = a.channel_id where"
        assert stage.database.value(f"{told} c.name like 'hangs%%' and a.error is not null") == 0
        stage.wait_status(stage.run_now("report"), "succeeded")
        errors = "select c.name, a.error is not null from pgcron.alerts a join pgcron.channels c on c.id = a.channel_id"
        stage.wait_for(
            lambda: (
                stage.database.rows(f"{errors} where c.name in ('busy', 'gone') order by 1")
                == [("busy", True), ("gone", True)]
            ),
            "each channel has its own answer",
        )
        worker.terminate()
        assert worker.wait() == 0


@pytest.mark.slow
def test_a_thousand_failures_are_few_messages_and_one_digest(stage: Stage, pager: Hook) -> None:
    """1,000 jobs fail at once. A channel hears of each of them in at most ten messages; one with digests in one."""
    with hook() as digests:
        add_channel(stage, "ops", f"webhook+http://{pager.address}/")
        add_channel(stage, "digests", f"webhook+http://{digests.address}/")
        stage.database.execute(
            "update pgcron.channels set digest_every = '1 hour', told_at = now() where name = 'digests'"
        )
        stage.database.execute(
            "insert into pgcron.jobs (name, kind, command, schedule, timezone)"
            " select 'job-' || i, 'sql', 'select 1/0', '@manual', 'UTC' from generate_series(1, 1000) i"
        )
        stage.database.execute(
            "insert into pgcron.runs (job_id, job_name, kind, trigger, scheduled_for, run_at, max_running)"
            " select id, name, kind, 'manual', now(), now(), 1 from pgcron.jobs"
        )
        for _ in range(2):
            stage.ready("--slots", "20")
        stage.wait_for(lambda: told(stage, "ops") == 1000, "the one channel is told all", timeout=100)
        assert jobs_in(pager) == sorted(f"job-{number}" for number in range(1, 1001))
        assert len(pager.posted) <= 10, [len(posted.json["alerts"]) for posted in pager.posted]

        assert digests.posted == []
        # As if the hour were over; a change of the mute wakes the workers.
        stage.database.execute(
            "update pgcron.channels set told_at = now() - interval '1 hour', muted_until = null where name = 'digests'"
        )
        stage.wait_for(lambda: told(stage, "digests") == 1000, "the digest is sent")
        assert jobs_in(digests) == jobs_in(pager)
        assert [posted.json["title"] for posted in digests.posted] == ["1000 jobs failed"]


def told(stage: Stage, channel: str) -> int:
    """How many alerts the channel has taken."""
    return int(
        stage.database.value(
            "select count(*) from pgcron.alerts a join pgcron.channels c on c.id = a.channel_id"
            " where c.name = %s and a.sent_at is not null",
            (channel,),
        )
    )


def jobs_in(server: Hook) -> list[str]:
    return sorted(facts["job"] for posted in server.posted for facts in posted.json["alerts"])


def test_no_secret_of_a_channel_is_seen_anywhere(stage: Stage, pager: Hook) -> None:
    """The worker logs all it can; the channels fail in all the ways they have."""
    token = "s3cr3t-1-t0ken"
    pager.answer = answering(500)
    targets = (
        f"json://user:{token}@{pager.address}/{token}",
        f"webhook+http://{pager.address}/{token}?secret={token}",
        f"webhook+http://127.0.0.1:1/{token}",
        f"pagerduty://{token}?url=http://{pager.address}/{token}",
        f"slack://{token}",
        f"mailto://user:{token}@127.0.0.1:1?from=a@example.org&to=b@example.org",
        "env:OPS_URL",
    )
    for number, target in enumerate(targets):
        add_channel(stage, f"channel-{number}", target)
    stage.add_job("backup", "shell", "false", max_attempts=1)
    worker = stage.ready("--log-level", "debug", OPS_URL=f"json://{token}@{pager.address}/{token}")
    fail(stage)
    refused = "select count(*) from pgcron.alerts where error is not null"
    seen: set[str] = set()

    def all_refused() -> bool:
        seen.update(_visible(worker.pid))
        return int(stage.database.value(refused)) == len(targets)

    stage.wait_for(all_refused, "all channels have failed")
    seen.update(row[0] for row in stage.database.rows("select query from pg_stat_activity where query is not null"))
    texts = [*seen, worker.log(), json.dumps(stage.database.rows("select error, payload::text from pgcron.alerts"))]
    assert [text for text in texts if token in text] == []
    assert any("notify.sender" in text for text in seen)


def _visible(pid: int) -> set[str]:
    """What ps shows of the worker's descendants, and the environment of those that send."""
    texts = set()
    for process in descendants(pid):
        texts.add(process.command)
        if "notify.sender" in process.command:
            with suppress(OSError):
                texts.add(Path(f"/proc/{process.pid}/environ").read_text(errors="replace"))
    return texts
