"""Each rule finds its own planted fault, and no other rule minds it; healthy jobs of all kinds pass."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgcron_runner.check import RULES, Figures, Installation, Job, Review, Route, review, select
from pgcron_runner.errors import InvalidInput

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
GOOD = Figures(runs=100, tried=100, succeeded=99, succeeded_late=3, p95=timedelta(seconds=5), p99=timedelta(seconds=8))
PLACE = Installation(channels=("ops",))


def job(name: str = "planted", **said: Any) -> Job:
    """A job that nothing is wrong with, but for what is said."""
    usual: dict[str, Any] = {
        "kind": "shell",
        "command": f"/usr/local/bin/{name}",
        "schedule": "17 5 * * *",
        "memory_limit_mb": 256,
    }
    return Job(**{"name": name, "timezone": "Europe/Berlin"} | usual | said)


HEALTHY = (
    job("backup", timeout=2 * HOUR),
    job("purge", kind="sql", command="delete from t", max_attempts=3, memory_limit_mb=None),
    job("tick", schedule="* * * * *", timeout=timedelta(seconds=50)),
    job("report", schedule="0 9 * * mon-fri", timezone="America/New_York", kind="python", command="a.b:c"),
    job("monthly", schedule="0 6 l * *"),
    job("both", overlap="allow", max_attempts=5, idempotent=True),
    job("nightly", schedule="10 23 * * *", timezone="UTC"),
    job("slices", schedule="@every 10m after finish"),
    job("by-hand", schedule="@manual"),
    job(
        "secret", command='login --password "$PASSWORD"', env={"API_TOKEN_FILE": "x"}, check_ignore={"PGC503": "a path"}
    ),
)


def codes(*jobs: Job, figures: dict[str, Figures] | None = None, place: Installation = PLACE) -> list[tuple[str, str]]:
    known = {each.name: GOOD for each in (*HEALTHY, *jobs)} | (figures or {})
    return [(f.code, f.job) for f in review((*HEALTHY, *jobs), select(), NOW, known, place).findings]


_PLANTED: dict[str, dict[str, Any]] = {
    "PGC101": {"overlap": "allow"},
    "PGC102": {"max_attempts": 3},
    "PGC201": {"timezone": ""},
    "PGC202": {"timezone": "UTC", "schedule": "0 9 * * mon-fri"},
    "PGC203": {"timezone": "CET"},
    "PGC204": {"schedule": "61 5 * * *"},
    "PGC211": {"schedule": "30 2 * * *", "dst_repeat": "last"},
    "PGC212": {"schedule": "30 2 * * *", "dst_gap": "skip"},
    "PGC221": {"schedule": "0 9 13 * fri"},
    "PGC222": {"schedule": "0 9 31 * *"},
    "PGC301": {"timeout": 3 * DAY, "schedule": "@yearly"},
    "PGC302": {"schedule": "*/5 * * * *"},
    "PGC303": {"memory_limit_mb": None},
    "PGC304": {"schedule": "*/10 * * * * *", "timeout": timedelta(seconds=9)},
    "PGC402": {"redact": ("card \\d+", "(unclosed")},
    "PGC501": {"command": r"tar cf /b/$(date +\%F) /srv"},
    "PGC502": {"command": "echo 'not closed"},
    "PGC503": {"command": "login --password hunter2-and-more"},
}


@pytest.mark.parametrize("code", _PLANTED)
def test_a_planted_fault_is_found_by_its_rule_alone(code: str) -> None:
    assert codes(job(**_PLANTED[code])) == [(code, "planted")]


_PAST = {
    "PGC601": (replace(GOOD, p95=2 * HOUR), {"schedule": "7 * * * *"}),
    "PGC602": (replace(GOOD, p99=HOUR), {}),
    "PGC603": (Figures(runs=5, tried=5), {}),
    "PGC604": (Figures(runs=50, tried=2, succeeded=2, skipped=48), {}),
    "PGC605": (replace(GOOD, succeeded_late=95), {}),
}


@pytest.mark.parametrize("code", _PAST)
def test_what_history_tells_is_found_by_its_rule_alone(code: str) -> None:
    figures, said = _PAST[code]
    assert codes(job(**said), figures={"planted": figures}) == [(code, "planted")]


def test_the_same_work_twice_is_found_alone() -> None:
    assert codes(job(command="/usr/local/bin/backup")) == [("PGC103", "planted")]


def test_a_job_that_no_route_hears_of_is_found_alone() -> None:
    heard = tuple(Route(channel="ops", job_pattern=each.name) for each in HEALTHY)
    assert codes(job(), place=Installation(channels=("ops",), routes=heard)) == [("PGC401", "planted")]


@pytest.mark.parametrize(
    "route",
    [
        Route(channel="ops", job_pattern="pl*d"),
        Route(channel="ops", tags=("a",)),
        Route(channel="ops", queue="default", events=("lost", "late")),
    ],
)
def test_a_route_hears_by_pattern_tags_and_queue(route: Route) -> None:
    place = Installation(channels=("ops",), routes=(route,))
    assert ("PGC401", "planted") not in codes(job(tags=("a", "b")), place=place)


@pytest.mark.parametrize(
    "route", [Route(channel="off"), Route(channel="ops", events=("recovered",)), Route(channel="ops", job_pattern="p")]
)
def test_a_route_that_does_not_reach_anybody_is_none(route: Route) -> None:
    elsewhere = Route(channel="ops", job_pattern="other")
    assert ("PGC401", "planted") in codes(job(), place=Installation(channels=("ops",), routes=(route, elsewhere)))


def test_many_jobs_at_one_minute_are_found_once() -> None:
    many = [job(f"j{n}", schedule=f"0 {n} * * *", timezone="Asia/Tokyo") for n in range(20)]
    assert codes(*many) == [("PGC231", "")]
    assert codes(*[replace(each, schedule=each.schedule.replace("0", "H", 1)) for each in many]) == []
    assert codes(*[replace(each, jitter=HOUR / 2) for each in many]) == []


def test_every_rule_has_a_planted_fault_in_this_file() -> None:
    assert set(RULES) == {*_PLANTED, *_PAST, "PGC103", "PGC231", "PGC401"}


def test_healthy_jobs_pass() -> None:
    assert codes() == []


def test_without_a_database_nothing_is_said_of_history_and_alerts() -> None:
    assert review([job()], select(), NOW).findings == ()


@pytest.mark.parametrize("code", RULES)
def test_every_page_says_what_why_and_what_to_do(code: str) -> None:
    paragraphs = RULES[code].page.split("\n\n")
    assert len(paragraphs) == 3
    assert paragraphs[2].startswith("Fix: ")
    assert RULES[code].fix.endswith(".")


def test_a_rule_is_left_out_for_one_job_by_code_or_name() -> None:
    def found(**ignore: str) -> Review:
        named = {key.replace("_", "-"): reason for key, reason in ignore.items()}
        return review([job(memory_limit_mb=None, check_ignore=named)], select(), NOW)

    assert [f.code for f in found().findings] == ["PGC303"]
    for left_out in (found(PGC303="tiny"), found(no_memory_limit="tiny")):
        assert (left_out.findings, left_out.ignored) == ((), 1)


def test_rules_are_chosen_by_code_beginning_or_name() -> None:
    assert [rule.code for rule in select(["pgc1"], ["same-work-twice"])] == ["PGC101", "PGC102"]
    with pytest.raises(InvalidInput, match=r"'no-memory' is no rule.*no-memory-limit"):
        select(["no-memory"])


# ------------------------------------------------------------------------------------------- what is no fault


@pytest.mark.parametrize(
    "said",
    [
        {"schedule": "0 9 31 1,mar,12 *"},
        {"schedule": "0 9 29 feb-mar *", "check_ignore": {"PGC222": "leap years only"}},
        {"schedule": "0 9 30 4,6 *"},
        {"schedule": "0 9 */2 * fri"},
        {"schedule": "30 2 * * *", "timezone": "Asia/Tokyo"},
        {"schedule": "*/15 * * * *", "timeout": HOUR / 4},
        {"schedule": "0 */6 * * *", "timezone": "UTC"},
        {"schedule": "*/10 * * * * *", "timeout": timedelta(seconds=9), "history": "failures"},
        {"command": "date +%F"},
        {"command": "echo \"it's\" # don't"},
        {"kind": "http", "command": "https://a.example/b?token=x", "memory_limit_mb": None},
        {"kind": "http", "command": "https://a.example", "args": {"headers": {"Authorization": "Bearer env:TOKEN"}}},
        {"command": "rotate-secrets --token-file /run/token", "env": {"PASSWORD_STORE": ""}},
    ],
)  # fmt: skip
def test_what_is_meant_so_is_not_found(said: dict[str, Any]) -> None:
    assert codes(job(**said)) == []


@pytest.mark.parametrize(
    "said",
    [
        {"env": {"DB_PASSWORD": "tiger"}},
        {"command": "psql postgresql://app:tiger@db/x"},
        {"command": "curl -H 'Authorization: Bearer abcdef0123456789' https://a.example"},
        {"kind": "python", "command": "a.b:c", "args": {"api_key": "k-1234567"}},
        {"args": {"headers": {"Authorization": "Bearer abcdef0123456789"}}},
    ],
)
def test_secrets_are_found_wherever_they_stand(said: dict[str, Any]) -> None:
    assert codes(job(**said)) == [("PGC503", "planted")]
