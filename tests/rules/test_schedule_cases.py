"""The 129 lines of tests/data/schedules.jsonl: faults reported against schedulers, with the right answers."""

from __future__ import annotations

import json
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pgcron_runner.errors import InvalidInput
from pgcron_runner.schedule import Schedule, parse_expression, parse_schedule, zone_data_version

_LINES = (Path(__file__).parents[1] / "data" / "schedules.jsonl").read_text(encoding="utf-8").splitlines()
CASES: list[dict[str, Any]] = [json.loads(line) for line in _LINES]
ANSWERED = [case for case in CASES if case["kind"] != "error"]
REFUSED = [case for case in CASES if case["kind"] == "error"]

# A schedule of several lines is their union, and `@every` is a schedule: only as one cron expression are these wrong.
WRONG_AS_CRON_ONLY = ("S29j", "S32g")


def _schedule(case: dict[str, Any]) -> Schedule:
    return parse_schedule(case["expr"], case["zone"], name="nightly-report")


def _expected(case: dict[str, Any]) -> list[datetime]:
    return [datetime.fromisoformat(text) for text in case["expect_utc"]]


def _id(case: dict[str, Any]) -> str:
    return str(case["id"])


def test_all_cases_are_here() -> None:
    assert len(CASES) == 129
    assert len(ANSWERED) + len(REFUSED) == 129
    assert all(case["kind"] == "next" for case in ANSWERED)


def test_the_zone_data_is_new_enough_for_every_case() -> None:
    assert zone_data_version() >= max(case.get("min_tzdata", "") for case in CASES)


@pytest.mark.parametrize("case", ANSWERED, ids=_id)
def test_case_next(case: dict[str, Any]) -> None:
    schedule = _schedule(case)
    began = time.perf_counter()
    at: datetime | None = datetime.fromisoformat(case["start_utc"])
    found = []
    for _ in range(case["count"]):
        assert at is not None
        at = schedule.next_after(at)
        found.append(at)
    assert found == _expected(case), case["title"]
    assert time.perf_counter() - began < case.get("time_budget_s", 60)


@pytest.mark.parametrize("case", ANSWERED, ids=_id)
def test_case_backwards_and_counted(case: dict[str, Any]) -> None:
    schedule, expected = _schedule(case), _expected(case)
    start = datetime.fromisoformat(case["start_utc"])
    assert list(schedule.between(start, expected[-1])) == expected
    assert schedule.count_between(start, expected[-1]) == len(expected)
    for earlier, later in pairwise(expected):
        assert schedule.prev_before(later) == earlier
    before = schedule.prev_before(expected[0])
    assert before is not None
    assert before <= start


@pytest.mark.parametrize("case", REFUSED, ids=_id)
def test_case_refused(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse_expression(case["expr"]) if case["id"] in WRONG_AS_CRON_ONLY else _schedule(case)
    assert refusal.value.field == "schedule"
    assert str(refusal.value).startswith("schedule: ")
    assert refusal.value.example


@pytest.mark.parametrize("case", [case for case in REFUSED if case["id"] in WRONG_AS_CRON_ONLY], ids=_id)
def test_what_is_wrong_as_one_expression_is_right_as_a_schedule(case: dict[str, Any]) -> None:
    start = datetime.fromisoformat(case["start_utc"])
    assert _schedule(case).next_after(start) is not None


def test_what_a_refusal_proposes_is_accepted() -> None:
    for case in REFUSED:
        with pytest.raises(InvalidInput) as refusal:
            parse_expression(case["expr"])
        proposal = str(refusal.value.example).split(" (")[0].split(", ")[0]
        parse_schedule(proposal, "Etc/UTC")
