"""The model tells no story of a broken promise, tells each one again, and notices when the protocol is broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.model.mutants import MUTANTS
from tests.model.scenario import Scenario

_SEEDS = 120
# Most mutants are noticed within ten seeds, all within a hundred.
_MOST_SEEDS = 500


@pytest.mark.timeout(600)
def test_no_promise_is_broken_whatever_goes_wrong() -> None:
    verdicts = [Scenario(seed).run() for seed in range(_SEEDS)]
    assert {verdict.seed: verdict.breaches for verdict in verdicts if verdict.breaches} == {}
    assert sum(verdict.occurrences for verdict in verdicts) > 10 * _SEEDS
    assert len(set().union(*(verdict.faults for verdict in verdicts))) == 15


def test_a_seed_is_one_story_in_every_process() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tests.model", "--seed", "7"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    first, again = Scenario(7).run(), Scenario(7).run()
    assert first == again
    assert [line[10:] for line in said.stdout.splitlines()[1:-1]] == [text for _, text in first.story]
    assert first.story != Scenario(8).run().story


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_protocol_is_noticed(name: str) -> None:
    mutant = MUTANTS[name]
    with mutant.applied():
        found = next((seed for seed in range(_MOST_SEEDS) if Scenario(seed, mutant.only).run().breaches), None)
    assert found is not None, mutant.what
