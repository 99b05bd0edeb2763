"""Each verdict on a time, in the words that people read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from pgcron_runner.explain import (
    Circumstances,
    ExplainedJob,
    Explanation,
    Moment,
    OccurrenceRun,
    explain,
    moments_shown,
)
from pgcron_runner.model import DstGap, ExcludedDays
from pgcron_runner.schedule import check_timezone

MADE = datetime(2027, 1, 1, tzinfo=UTC)
NOW = datetime(2027, 1, 10, 12, tzinfo=UTC)
DUE = datetime(2027, 1, 10, 9, tzinfo=UTC)  # 10:00 in Berlin
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

JOB = ExplainedJob(
    name="job",
    schedule="0 10 * * *",
    timezone="Europe/Berlin",
    enabled=True,
    planned=True,
    anchored_at=MADE,
    created_at=MADE,
    next_run_at=DUE + DAY,
)


def run(at: datetime = DUE, **facts: Any) -> OccurrenceRun:
    usual: dict[str, Any] = {
        "id": 7,
        "status": "succeeded",
        "trigger": "schedule",
        "scheduled_for": at,
        "run_at": at,
        "attempt": 1,
        "backfill": False,
        "reason": None,
        "created_at": at,
        "started_at": at,
        "finished_at": at + MINUTE,
        "exit_code": 0,
        "error": None,
        "worker": "web-1",
        "missed_count": None,
        "missed_until": None,
        "cancel_requested_at": None,
    }
    return OccurrenceRun(**usual | facts)


def missed(first: datetime, last: datetime, count: int) -> OccurrenceRun:
    facts = {"status": "missed", "missed_count": count, "missed_until": last, "started_at": None, "reason": "nobody"}
    return run(first, **facts)


def queued(**facts: Any) -> OccurrenceRun:
    return run(**{"status": "queued", "started_at": None, "finished_at": None, "worker": None} | facts)


def told(
    *runs: OccurrenceRun, at: datetime = DUE, around: Circumstances | None = None, now: datetime = NOW, **job: Any
) -> Explanation:
    [only] = explain(replace(JOB, **job), Moment(at, at + MINUTE), runs, now, around or Circumstances())
    return only


def words(explanation: Explanation) -> tuple[str, str]:
    return explanation.verdict, " ".join(explanation.sentences)


def test_it_ran_in_time() -> None:
    assert words(told(run())) == (
        "succeeded",
        "Run 7 started at 2027-01-10 10:00:00+01:00 on worker web-1: it succeeded after 1m.",
    )


def test_it_ran_late_and_what_that_was_made_of() -> None:
    late = run(run_at=DUE + MINUTE, created_at=DUE + 2 * HOUR, started_at=DUE + 2 * HOUR + 5 * MINUTE)
    late = replace(late, finished_at=DUE + 3 * HOUR)
    assert told(late).sentences[1] == (
        "That is 2h5m after its time: 1m of jitter, 1h59m until a worker was there to fire it (caught up), "
        "5m waiting for a free slot or an earlier run."
    )


def test_attempts_are_told_one_after_the_other() -> None:
    first = run(status="failed", exit_code=3, error="boom\nat line 1")
    second = run(id=8, attempt=2, trigger="retry", run_at=DUE + MINUTE, started_at=DUE + MINUTE)
    explanation = told(first, replace(second, finished_at=DUE + 2 * MINUTE))
    assert explanation.verdict == "succeeded"
    assert explanation.sentences == (
        "Run 7 started at 2027-01-10 10:00:00+01:00 on worker web-1: it failed after 1m (boom; exit code 3).",
        "Run 8, attempt 2, started at 2027-01-10 10:01:00+01:00 on worker web-1: it succeeded after 1m.",
        "That is 1m after its time: 1m for the attempts before it.",
    )


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ("timed_out", "it timed out after 1m"),
        ("lost", "it was lost after 1m"),
        ("interrupted", "it was interrupted after 1m"),
        ("cancelled", "it was cancelled after 1m"),
    ],
)
def test_each_end_has_its_words(status: str, sentence: str) -> None:
    assert sentence in told(run(status=status)).sentences[0]


def test_it_was_skipped() -> None:
    skipped = run(status="skipped", reason="overlap: run 6 is still running", started_at=None)
    assert words(told(skipped)) == ("skipped", "Run 7 was skipped: overlap: run 6 is still running.")


def test_it_was_cancelled_before_it_started() -> None:
    cancelled = run(status="cancelled", reason="the job was paused", started_at=None)
    assert words(told(cancelled)) == ("cancelled", "Run 7 was cancelled before it started (the job was paused).")


def test_a_missed_range_covers_it() -> None:
    assert words(told(missed(DUE - 2 * DAY, DUE + HOUR, 3))) == (
        "missed",
        "Run 7 records it as missed, one of 3 times from 2027-01-08 10:00:00+01:00 to "
        "2027-01-10 11:00:00+01:00: nobody.",
    )
    assert words(told(missed(DUE, DUE, 1))) == ("missed", "Run 7 records it as missed: nobody.")


def test_a_run_of_its_own_counts_for_more_than_a_missed_range_around_it() -> None:
    assert told(missed(DUE - DAY, DUE + DAY, 2), run(id=8)).verdict == "succeeded"


def test_it_is_running() -> None:
    running = run(status="running", started_at=NOW - HOUR, finished_at=None, created_at=NOW - HOUR)
    verdict, text = words(told(running))
    assert verdict == "running"
    assert text.startswith(
        "Run 7 has been running for 1h on worker web-1. That is 2h after its time: 2h until a worker"
    )


@pytest.mark.parametrize(
    ("facts", "around", "sentence"),
    [
        ({"run_at": NOW + MINUTE}, {}, "may start at 2027-01-10 13:01:00+01:00, in 1m, after its jitter."),
        ({"run_at": NOW + MINUTE, "attempt": 2}, {}, "in 1m, after the pause before another attempt."),
        ({}, {}, "has waited for 3h. It waits for a free slot of a worker, or for another run of the job to end."),
        ({}, {"workers": 0}, "No worker is alive that would take it."),
        ({}, {"queue_paused": True}, "Its queue is paused."),
        ({}, {"paused": True}, "Everything is paused"),
    ],
)
def test_it_is_queued(facts: dict[str, Any], around: dict[str, Any], sentence: str) -> None:
    verdict, text = words(told(queued(**facts), around=Circumstances(**around)))
    assert verdict == "queued"
    assert sentence in text


def test_it_was_not_due_then() -> None:
    assert words(told(at=DUE + HOUR)) == (
        "not_due",
        "It was not due at 2027-01-10 11:00:00+01:00: its schedule '0 10 * * *' says no. "
        "The nearest time before is 2027-01-10 10:00:00+01:00. The nearest time after is 2027-01-11 10:00:00+01:00.",
    )


@pytest.mark.parametrize(
    ("job", "at", "verdict", "sentence"),
    [
        ({"created_at": NOW - HOUR}, DUE, "before_made", "The job was made later, at 2027-01-10 12:00:00+01:00."),
        ({"anchored_at": NOW - HOUR}, DUE, "before_edited", "edited, enabled, paused or resumed at 2027-01-10 12:00"),
        ({"enabled": False}, DUE, "disabled", "The job is disabled, since 2027-01-01 01:00:00+01:00."),
        ({"paused_until": NOW + DAY}, DUE, "paused", "paused, from 2027-01-01 01:00:00+01:00 until 2027-01-11"),
        ({"paused_until": NOW + DAY}, DUE, "paused", "is paused, from"),
        (
            {"paused_until": NOW - MINUTE},
            DUE,
            "paused",
            "The job was paused, from 2027-01-01 01:00:00+01:00 until 2027",
        ),
        ({"paused_until": NOW - MINUTE}, DUE, "paused", "job resume --catch-up makes up for it."),
        ({"starts_at": NOW}, DUE, "before_starts_at", "Its starts_at is later: 2027-01-10 13:00:00+01:00."),
        ({"ends_at": DUE - DAY}, DUE, "after_ends_at", "Its ends_at is earlier: 2027-01-09 10:00:00+01:00."),
        ({"problem": "schedule: no"}, DUE, "problem", "until it is edited: schedule: no"),
        ({}, DUE + DAY, "future", "It is due at 2027-01-11 10:00:00+01:00. That is in 21h."),
        ({"enabled": False}, DUE + DAY, "disabled", "The job is disabled"),
        ({"next_run_at": DUE}, DUE, "not_fired", "It was due 3h ago, and no worker has turned it into a run yet."),
        ({"planned": False}, DUE, "not_fired", "Workers are alive"),
        ({"history": "failures"}, DUE, "pruned", "is removed after an hour"),
        ({}, DUE, "unknown", "somebody may have removed the row"),
        ({"schedule": "@manual"}, DUE, "manual", "It is a manual job"),
        ({"schedule": "@every 5m after finish"}, DUE, "after_finish", "5m after the end of each run"),
        ({"schedule": "no"}, DUE, "problem", "The job has a problem"),
    ],
)
def test_why_there_is_no_run(job: dict[str, Any], at: datetime, verdict: str, sentence: str) -> None:
    explanation = told(at=at, **job)
    assert explanation.verdict == verdict
    assert sentence in " ".join(explanation.sentences)


def test_what_is_still_to_come_in_a_pause_cannot_be_made_up_for_yet() -> None:
    sentences = told(at=DUE + DAY, paused_until=NOW + 2 * DAY).sentences
    assert sentences[-1] == "The job is paused, from 2027-01-01 01:00:00+01:00 until 2027-01-12 13:00:00+01:00."


def test_an_excluded_day() -> None:
    around = Circumstances(excluded=(ExcludedDays("holidays", date(2027, 1, 10), date(2027, 1, 10), "Feast"),))
    assert words(told(around=around)) == ("excluded", "It falls on an excluded day: calendar holidays: Feast.")


def test_history_does_not_go_back_so_far() -> None:
    around = Circumstances(keep_for=timedelta(hours=1))
    assert words(told(around=around)) == (
        "pruned",
        "Runs are kept for 1h: one of that time would be gone by now.",
    )


def test_a_run_of_an_older_schedule() -> None:
    assert "it was edited since" in told(run(), schedule="0 11 * * *").sentences[0]


def test_by_hand_and_by_backfill() -> None:
    assert told(run(trigger="manual")).sentences[0].startswith("Run 7, which somebody started by hand, started at")
    filled = run(trigger="backfill", backfill=True, started_at=NOW)
    filled = replace(filled, finished_at=NOW + MINUTE)
    sentence = "Run 7 of a backfill started at 2027-01-10 13:00:00+01:00 on worker web-1: it succeeded after 1m."
    assert told(filled, created_at=NOW).sentences == (
        sentence,
        "At the time itself it did not run. The job was made later, at 2027-01-10 13:00:00+01:00.",
    )
    assert (
        told(missed(DUE - DAY, DUE, 2), replace(filled, id=8))
        .sentences[1]
        .startswith("At the time itself it did not run. Run 7 records it as missed, one of 2 times")
    )
    assert told(run(status="failed"), replace(filled, id=8)).sentences[-1].startswith("Run 8 of a backfill started")


def test_a_minute_of_seconds_is_told_one_by_one_and_not_without_end() -> None:
    job = replace(JOB, schedule="*/2 * * * * *", next_run_at=NOW)
    assert len(explain(job, Moment(DUE, DUE + MINUTE), [], NOW, Circumstances())) == 10
    assert len(explain(job, Moment(DUE, DUE + timedelta(seconds=1)), [], NOW, Circumstances())) == 1


def test_a_time_that_the_clock_skips() -> None:
    [moment] = moments_shown(datetime.fromisoformat("2027-03-28T02:30"), MINUTE, check_timezone("Europe/Berlin"))
    assert moment.start == datetime(2027, 3, 28, 1, tzinfo=UTC)
    assert moment.remark == "The clock of Europe/Berlin skips 02:30 on 2027-03-28: it goes from 02:00 to 03:00."
    job = replace(JOB, schedule="30 2 * * *")
    [moved] = explain(job, moment, [], NOW, Circumstances())
    assert moved.sentences[:2] == (moment.remark, "It is due at 2027-03-28 03:00:00+02:00.")
    [left_out] = explain(replace(job, dst_gap=DstGap.SKIP), moment, [], NOW, Circumstances())
    assert left_out.verdict == "not_due"
    assert left_out.sentences[2] == "Its dst_gap is skip: a time that the clock skips is left out."


def test_a_time_that_the_clock_shows_twice() -> None:
    first, second = moments_shown(datetime.fromisoformat("2027-10-31T02:30"), MINUTE, check_timezone("Europe/Berlin"))
    assert second.start - first.start == HOUR
    assert second.remark.endswith("twice on 2027-10-31; this is the second pass.")
    job = replace(JOB, schedule="30 2 * * *")
    assert explain(job, first, [], NOW, Circumstances())[0].verdict == "future"
    [again] = explain(job, second, [], NOW, Circumstances())
    assert again.verdict == "not_due"
    assert again.sentences[2] == "Its dst_repeat is first: it runs on that pass only."
