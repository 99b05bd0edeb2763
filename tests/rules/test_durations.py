"""Durations as people write them."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgcron_runner.durations import format_duration, parse_duration
from pgcron_runner.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("1h30m", timedelta(minutes=90)),
        ("1 hour 30 minutes", timedelta(minutes=90)),
        ("7 days", timedelta(days=7)),
        ("2w", timedelta(days=14)),
        ("250ms", timedelta(milliseconds=250)),
        (" 1.5 H ", timedelta(minutes=90)),
        ("0.5ms", timedelta(microseconds=500)),
        ("15min", timedelta(minutes=15)),
        ("36500 days", timedelta(days=36500)),
    ],
)
def test_forms(text: str, expected: timedelta) -> None:
    assert parse_duration(text, field="timeout", minimum=timedelta(microseconds=1)) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a duration"),
        ("  ", "is not a duration"),
        ("soon", "is not a duration"),
        ("5", "has no unit"),
        ("5.5", "has no unit"),
        ("5x", "is not a duration"),
        ("5m!", "is not a duration"),
        ("-5m", "is not a duration"),
        ("1e3s", "is not a duration"),
        ("5 m 3", "is not a duration"),
        ("m5", "is not a duration"),
        ("\u0665s", "is not a duration"),
        ("inf s", "is not a duration"),
        ("0s", "is shorter than 1ms"),
        ("0.1ms", "is shorter than 1ms"),
        ("101 years", "is not a duration"),
        ("9" * 400 + "s", "is longer than a hundred years"),
        ("6000 weeks", "is longer than a hundred years"),
        ("5000w 5000w", "is longer than a hundred years"),
    ],
)
def test_refusals_name_the_field_and_the_fault(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refusal:
        parse_duration(text, field="retry_delay")
    assert refusal.value.field == "retry_delay"
    assert refusal.value.value == text
    assert refusal.value.example


def test_a_minimum_is_said() -> None:
    with pytest.raises(InvalidInput, match=r"timeout: '1s' is shorter than 1m30s\. For example: 90s"):
        parse_duration("1s", field="timeout", minimum=timedelta(seconds=90))


@given(st.timedeltas(timedelta(microseconds=1), timedelta(days=36_500)))
def test_what_is_formatted_reads_back_exactly(duration: timedelta) -> None:
    text = format_duration(duration)
    assert parse_duration(text, field="timeout", minimum=timedelta(microseconds=1)) == duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=7), "7d"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(seconds=-90), "-1m30s"),
    ],
)
def test_the_shortest_text(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(st.text(max_size=30))
def test_any_text_is_a_duration_or_refused_in_words(text: str) -> None:
    with suppress(InvalidInput):
        assert parse_duration(text, field="timeout") > timedelta(0)
