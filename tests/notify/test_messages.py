"""What messages say, to the letter; and that nothing a job prints can do more than be read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgcron_runner.notify.digest import render_all
from pgcron_runner.notify.facts import presentable
from pgcron_runner.notify.markup import PLAIN, Form, block, defuse, escaped, inline
from pgcron_runner.notify.messages import when
from pgcron_runner.notify.templates import FACTS
from tests.notify.facts import facts

MARKDOWN = Form(markdown=True)
RUN = ("started_at", "finished_at", "error", "exit_code", "output", "attempt")


def test_a_failure_is_told_with_all_that_helps_at_night() -> None:
    message = render_all([facts(failures=4, since="2026-02-28T02:00:00+00:00", tags=["db", "eu"])], PLAIN)
    assert message.title == "backup failed (4 in a row) on db-1"
    assert message.body.split("\n") == [
        "Error: exited with code 2",
        "Attempt: 3 of 3",
        "Since: 2026-02-28 03:00:00+0100 (2026-02-28 02:00:00Z), for 1d, 4 times",
        "Was due: 2026-03-01 03:00:00+0100 (2026-03-01 02:00:00Z)",
        "Started: 2026-03-01 03:00:00+0100 (2026-03-01 02:00:00Z)",
        "Ended: 2026-03-01 03:00:09+0100 (2026-03-01 02:00:09Z), after 8s",
        "Next time: 2026-03-02 03:00:00+0100 (2026-03-02 02:00:00Z)",
        "Job: shell, tags db eu, of ops, by worker w1",
        "More: pgcron-runner runs show 4711; pgcron-runner runs logs 4711",
        "",
        "Output, the last of it:",
        "  | copying",
        "  | no space left",
    ]


def test_in_markdown_foreign_texts_are_code() -> None:
    message = render_all([facts(error="no_such *file* `x`", output="a ``` b\n@here")], MARKDOWN)
    assert "- Error: `no_such *file* 'x'`\n- Exit code: 2\n" in message.body
    assert message.body.endswith("Output, the last of it:\n```\na ''' b\n@\u200bhere\n```")


@pytest.mark.parametrize(
    ("event", "given", "title", "lines"),
    [
        ("timed_out", {}, "backup timed out on db-1", ["Error: exited with code 2"]),
        ("lost", {"failures": 2}, "backup was lost with its worker (2 in a row) on db-1", []),
        ("launch_failed", {}, "backup could not be started on db-1", []),
        (
            "late",
            {"created_at": "2026-03-01T02:20:00Z", "host": None} | dict.fromkeys(RUN),
            "backup has not started in time",
            ["Was due: 2026-03-01 03:00:00+0100 (2026-03-01 02:00:00Z), 20m ago"],
        ),
        (
            "missed",
            {"missed_count": 12, "missed_until": "2026-03-01T04:00:00Z", "reason": "nobody was there", "host": None}
            | dict.fromkeys(RUN),
            "backup was missed 12 times",
            ["Reason: nobody was there", "Missed until: 2026-03-01 05:00:00+0100 (2026-03-01 04:00:00Z)"],
        ),
        (
            "long",
            {"finished_at": None, "error": None, "exit_code": None, "created_at": "2026-03-01T05:10:00Z"},
            "backup is taking too long on db-1",
            ["Started: 2026-03-01 03:00:00+0100 (2026-03-01 02:00:00Z), 3h9m ago"],
        ),
        (
            "invalid",
            {"problem": "minute 99"} | dict.fromkeys(("host", *RUN)),
            "backup cannot be scheduled",
            ["Problem: minute 99"],
        ),
        (
            "recovered",
            {"failures": 3, "since": "2026-03-01T00:00:09Z"},
            "backup works again, after 3 failures on db-1",
            ["It lasted: 2h, 3 times, since 2026-03-01 01:00:09+0100 (2026-03-01 00:00:09Z)"],
        ),
        ("recovered", {"kind_of_incident": "late"}, "backup runs again on db-1", []),
        ("recovered", {"kind_of_incident": "long"}, "backup has ended at last on db-1", []),
        ("recovered", {"kind_of_incident": "invalid", "host": None}, "backup can be scheduled again", []),
        ("recovered", {"because": "the job was removed"}, "backup: the job was removed", []),
        ("acknowledged", {"acknowledged_by": "alice"}, "backup: alice is looking at it", []),
        ("failed", {"repeat": 2, "failures": 9}, "Still: backup failed (9 in a row) on db-1", []),
        (
            "failed",
            {"paused_reason": "disabled after 10 failures in a row"},
            "backup failed and is disabled on db-1",
            ["Now: disabled after 10 failures in a row; it starts nothing until it is resumed"],
        ),
        (
            "failed",
            {"resent": True},
            "backup failed on db-1",
            ["Note: this may have come before: the worker that was sending it has died"],
        ),
        ("brand_new", {"host": None}, "backup brand new", []),
    ],
)  # fmt: skip
def test_each_event_has_its_own_sense(event: str, given: dict[str, Any], title: str, lines: list[str]) -> None:
    message = render_all(presentable([facts(event, **given)]), PLAIN)
    assert message.title == title
    for line in lines:
        assert line in message.body.split("\n")


def test_what_was_wrong_is_not_told_again_when_it_is_mended() -> None:
    body = render_all([facts("recovered")], PLAIN).body
    assert "Error" not in body
    assert "no space left" not in body


def test_a_test_says_who_asked_for_it() -> None:
    message = render_all([{"event": "test", "owner": "alice"}], PLAIN)
    assert message.title == "pgcron-runner: test"
    assert message.body == "This channel works. Alerts about jobs will look like this. Asked for by alice."


def test_an_alert_that_knows_nothing_is_still_a_message() -> None:
    message = render_all([{"event": "failed"}], PLAIN)
    assert (message.title, message.body) == ("A job failed", "No more is known.")


# --------------------------------------------------------------------------------------------------------- digests


def test_a_digest_counts_jobs_and_begins_with_the_worst() -> None:
    alerts = [
        facts("recovered", job="mended", failures=2),
        *(facts(job=f"job-{number}", error=f"no {number}\nand more") for number in range(12)),
        facts(job="job-0", error="again"),
        facts("late", "error", job="slow"),
    ]
    message = render_all(alerts, PLAIN)
    assert message.title == "12 jobs failed, 1 has not started in time, 1 works again"
    lines = message.body.split("\n")
    assert lines[:3] == [
        "Failed (12):",
        "- job-0 failed on db-1 (2 times): again",
        "- job-1 failed on db-1: no 1",
    ]
    assert lines[13:] == [
        "Has not started in time (1):",
        "- slow has not started in time on db-1",
        "Works again (1):",
        "- mended works again, after 2 failures on db-1",
        "More: pgcron-runner incident list",
    ]


def test_a_storm_is_a_page_and_no_group_is_lost_in_it() -> None:
    alerts = [facts(job=f"job-{number}") for number in range(500)] + [facts("late", job="x"), facts("recovered")]
    lines = render_all(alerts, PLAIN).body.split("\n")
    assert lines.count("and 460 more") == 1
    assert "- x has not started in time on db-1: exited with code 2" in lines
    assert len(lines) < 60


def test_one_event_needs_no_heading() -> None:
    assert render_all([facts(job="a"), facts(job="b")], MARKDOWN).body.split("\n") == [
        "- `a failed on db-1`: `exited with code 2`",
        "- `b failed on db-1`: `exited with code 2`",
        "More: `pgcron-runner incident list`",
    ]


# ------------------------------------------------------------------------------------------------ foreign texts


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("@channel help", "@\u200bchannel help"),
        ("<!here> <@U123> <#C1>", "<\u200b!here> <\u200b@\u200bU123> <\u200b#C1>"),
        ("write to ops@example.org", "write to ops@example.org"),
        ("x@everyone", "x@\u200beveryone"),
        ("a @ b <b>", "a @ b <b>"),
    ],
)
def test_nobody_is_called_by_a_job(text: str, harmless: str) -> None:
    assert defuse(text, Form()) == harmless
    assert defuse(text, PLAIN) == text


def test_a_foreign_text_stays_where_it_is() -> None:
    assert inline("a\nb `c`", MARKDOWN) == "`a b 'c'`"
    assert escaped("a_b *c* [d](e)", MARKDOWN) == r"a\_b \*c\* \[d\]\(e\)"
    assert escaped("a_b", PLAIN) == "a_b"
    assert block("a\nb", PLAIN) == "  | a\n  | b"


@pytest.mark.parametrize("markdown", [False, True])
@pytest.mark.parametrize("longest", [60, 150, 1_000, 30_000])
def test_a_message_fits_and_the_last_lines_of_the_output_are_kept(longest: int, markdown: bool) -> None:
    output = "\n".join(f"line {number} " + "x" * 300 for number in range(200)) + "\nthe last line"
    message = render_all([facts(error="e" * 9_000, output=output)], Form(markdown=markdown, longest=longest))
    assert len(message.body) <= longest
    if longest >= 1_000:
        assert "pgcron-runner runs show 4711" in message.body or longest == 1_000
    if longest == 30_000:
        assert "the last line" in message.body
        assert message.body.count("\n") < 40
    digest = render_all([facts(job=f"job-{number}") for number in range(99)], Form(markdown=markdown, longest=longest))
    assert len(digest.body) <= max(longest, 100)


# The first text of all takes a second to make, on a busy machine.
PATIENT = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
VALUES = st.none() | st.integers() | st.text(max_size=40) | st.lists(st.text(max_size=5), max_size=3) | st.booleans()


@PATIENT
@given(
    alerts=st.lists(st.dictionaries(st.sampled_from([*sorted(FACTS), "redact"]), VALUES), min_size=1, max_size=4),
    markdown=st.booleans(),
    longest=st.integers(60, 500),
)
def test_whatever_an_alert_says_there_is_a_message(alerts: list[dict[str, Any]], markdown: bool, longest: int) -> None:
    message = render_all(presentable(alerts), Form(markdown=markdown, longest=longest))
    assert 0 < len(message.title) <= 200
    assert message.body
    assert "\n" not in message.title
    assert len(alerts) > 1 or len(message.body) <= longest


# --------------------------------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("text", "zone", "written"),
    [
        ("2026-07-01T10:00:00+00:00", "Europe/Berlin", "2026-07-01 12:00:00+0200 (2026-07-01 10:00:00Z)"),
        ("2026-07-01T10:00:00+02:00", "UTC", "2026-07-01 08:00:00Z"),
        ("2026-07-01T10:00:00Z", None, "2026-07-01 10:00:00Z"),
        ("2026-07-01T10:00:00Z", "No/Where", "2026-07-01 10:00:00Z"),
        ("2026-07-01T10:00:00Z", "../etc/passwd", "2026-07-01 10:00:00Z"),
        ("infinity", "UTC", "infinity"),
    ],
)
def test_times_are_those_of_the_job_and_of_the_world(text: str, zone: str | None, written: str) -> None:
    assert when(text, zone) == written
