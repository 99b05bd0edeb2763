"""Texts of channels' own: what they can say, and that none of them keeps a message back."""

from __future__ import annotations

import pytest

from pgcron_runner.errors import InvalidInput
from pgcron_runner.notify.markup import PLAIN
from pgcron_runner.notify.messages import Message
from pgcron_runner.notify.templates import check_template
from pgcron_runner.notify.writing import Writer
from tests.notify.facts import facts


def written(template: str) -> Message:
    return Writer(template=template).write([facts()], PLAIN)


def test_a_template_knows_the_facts_and_the_built_in_text() -> None:
    message = written("title: {{ job | upper }}\nrun {{ run }} at {{ scheduled_for | when(timezone) }}\n{{ title }}")
    assert message.title == "BACKUP"
    assert message.body == "run 4711 at 2026-03-01 03:00:00+0100 (2026-03-01 02:00:00Z)\nbackup failed on db-1"


def test_without_a_title_it_has_the_built_in_one_and_without_a_text_the_built_in_text() -> None:
    assert written("just {{ job }}") == Message("backup failed on db-1", "just backup")
    assert written("title: {{ job }}").title == "backup"
    assert "no space left" in written("title: {{ job }}").body


def test_in_a_digest_it_has_all_alerts() -> None:
    template = "{% for alert in alerts %}{{ alert.job }}:{{ alert.event }} {% endfor %}"
    message = Writer(template=template).write([facts(job="a"), facts("late", job="b")], PLAIN)
    assert message.body == "a:failed b:late"


def test_a_fact_that_is_missing_is_empty() -> None:
    assert written("x{{ missed_until }}{{ alerts[0].nothing }}y").body == "xy"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ job.__class__.__mro__ }}", "SecurityError"),
        ("{{ alerts.append(1) }}", "SecurityError"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "it took too long"),
        ("{{ 'x' * 9999999999 }}", "it needs too much memory"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{% include '/etc/passwd' %}", "TypeError: no loader for this environment specified"),
    ],
)
def test_one_that_fails_loses_nothing_and_says_why(template: str, reason: str) -> None:
    message = written(template)
    first, _, rest = message.body.partition("\n")
    assert first.startswith(f"(The channel's template failed: {reason}")
    assert message.title == "backup failed on db-1"
    assert "no space left" in rest


def test_a_long_one_is_cut() -> None:
    assert len(written("{% for a in range(9999) %}{{ output }}{% endfor %}").body) <= 20_000


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("line\n{% if %}", "is no template: Expected an expression, got 'end of statement block' (line 2)"),
        ("{{ job_nam }}", "asks for job_nam, which no alert has. There are: acknowledged_by, attempt, because,"),
        ("{{ 1 / 0 }}", "fails with an alert about a job: ZeroDivisionError: division by zero"),
        ("{{ job.__class__.__mro__ }}", "fails with an alert about a job: SecurityError"),
    ],
)
def test_what_can_be_seen_before_is_refused_in_words(template: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_template(template)
    assert problem in str(refused.value)


def test_what_works_is_taken() -> None:
    check_template("title: {{ job }}\n{% set x = failures %}{% for a in alerts %}{{ a.job }} {{ x }}{% endfor %}")
