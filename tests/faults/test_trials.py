"""A few of the trials of trials.py: whatever takes a worker away, nothing that its jobs started outlives its lease."""

from __future__ import annotations

import pytest

from pgcron_runner.embedded import Server
from tests.faults.trials import CAUSES, run_trials

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("cause", CAUSES)
def test_nothing_outlives_the_lease(own_server: Server, cause: str) -> None:
    done = run_trials(own_server, cause, trials=3, lanes=3)
    assert [trial.left for trial in done] == [0, 0, 0], done
    # By how much it was in time is printed by the program, for a machine that has nothing else to do.
    print(done)
