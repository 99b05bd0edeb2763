"""The fault programme in short: a storm that breaks no promise, and a broken program that does not get away."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.mutants.__main__ import order_for
from tests.faults.mutants.catalogue import ALL, Mutant, find
from tests.faults.programme.play import Order, play
from tests.faults.programme.report import report

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]

_ROOT = Path(__file__).parents[2]


def bin_dir() -> Path | None:
    given = os.environ.get("PGCRON_TEST_BIN")
    return Path(given) if given else None


def test_a_short_storm_breaks_no_promise() -> None:
    played = play(Order(seed=4, minutes=0.4, rate=40, calm=4, bin_dir=bin_dir()))
    assert len(played.done) > 3
    assert len(played.history.runs) > 100
    assert [str(breach) for breach in played.breaches] == [], report(played)


def test_a_program_that_is_broken_on_purpose_is_caught() -> None:
    order = order_for(find("attempts-without-end"), seed=1)
    played = play(replace(order, minutes=0.15, bin_dir=bin_dir()))
    assert "attempts within limits" in {breach.rule for breach in played.breaches}


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_each_mutant_still_finds_what_it_breaks(mutant: Mutant) -> None:
    code = (
        "import sys; from tests.faults.mutants.catalogue import find; find(sys.argv[1]).patch();"
        " import pgcron_runner.worker, pgcron_runner.statements as s;"
        " [s.query(path.stem) for path in (s.sql_folder() / 'queries').glob('*.sql')]"
    )
    subprocess.run([sys.executable, "-c", code, mutant.name], check=True, cwd=_ROOT, timeout=60)
