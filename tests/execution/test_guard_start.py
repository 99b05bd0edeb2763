"""A guard that cannot be started: the worker ends with a sentence, and whoever started it tries again."""

from __future__ import annotations

import sys

import pytest

from pgcron_runner.errors import GuardLost
from pgcron_runner.execution.processes import Guard


@pytest.mark.parametrize(
    ("program", "words"),
    [
        pytest.param("/nowhere/python", "could not be started: No such file or directory", id="no process"),
        pytest.param("/bin/false", "did not start", id="one that ends at once"),
    ],
)
def test_a_guard_that_cannot_be_started_is_told_in_a_sentence(
    program: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(GuardLost, match=words):
        Guard.start()
