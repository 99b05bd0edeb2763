"""`python -m tests.faults.mutants [--minutes 10] [NAME …]`: every mutant against the programme, and what caught it.

Exit code 1 where one was not caught.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.faults.checker import Breach
from tests.faults.mutants.catalogue import ALL, Mutant, find
from tests.faults.programme.play import Order, play, tidy_up_on_term

_STORM = 0.8


def main() -> int:
    """Plays short storms with each until it is caught or its time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(mutant.name for mutant in ALL))
    parser.add_argument("--minutes", type=float, default=10.0, help="for each")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    tidy_up_on_term()
    mutants = [find(name) for name in given.names] or list(ALL)
    caught = [_try(mutant, given.minutes * 60, given.seed) for mutant in mutants]
    return 0 if all(caught) else 1


def _try(mutant: Mutant, patience: float, seed: int) -> bool:
    began = time.monotonic()
    faults = 0
    while time.monotonic() - began < patience:
        played = play(order_for(mutant, seed), say=False)
        faults += len(played.done)
        # That a worker has ended, or has said something, is no proof that what was broken has been seen.
        if telling := [breach for breach in played.breaches if breach.rule != "workers are sound"]:
            passed = time.monotonic() - began
            print(f"caught      {mutant.name}: {_by_what(telling)}; after {faults} faults, {passed:.0f} s")
            print(f"            e.g. {telling[0]}", flush=True)
            return True
        seed += 1
    print(f"NOT CAUGHT  {mutant.name} ({mutant.what}) by {faults} faults in {patience:.0f} s", flush=True)
    return False


def order_for(mutant: Mutant, seed: int) -> Order:
    """A short storm of the faults that should bring it to light."""
    return Order(seed, _STORM, only=mutant.only, mutant=mutant.name, rate=mutant.rate, calm=0, cables=False)


def _by_what(breaches: list[Breach]) -> str:
    rules = Counter(breach.rule for breach in breaches)
    return ", ".join(f"{count} x {rule}" for rule, count in rules.most_common())


if __name__ == "__main__":
    sys.exit(main())
