"""`python -m tests.model --seeds 10000`: many stories. `--seed 7`: one, told. Exit code 1 at a broken promise."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import nullcontext

from tests.model.mutants import MUTANTS
from tests.model.scenario import Scenario, Verdict

_MOST_STORIES = 3


def main() -> int:
    """Runs the seeds and prints what they came to."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many stories")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first one")
    parser.add_argument("--seed", type=int, help="this one alone, told from its begin to its end")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="break the program on purpose")
    given = parser.parse_args()
    mutant = MUTANTS.get(given.mutant)
    with mutant.applied() if mutant else nullcontext():
        only = mutant.only if mutant else ()
        if given.seed is not None:
            return _tell(Scenario(given.seed, only).run())
        return _judge(range(given.first, given.first + given.seeds), only)


def _judge(seeds: Sequence[int], only: Collection[str]) -> int:
    # As a worker does: nearly all objects are gone as soon as nobody needs them.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    began, occurrences, faults, broken = time.process_time(), 0, Counter[str](), 0
    for seed in seeds:
        verdict = Scenario(seed, only).run()
        occurrences += verdict.occurrences
        faults += verdict.faults
        if verdict.breaches:
            broken += 1
            if broken <= _MOST_STORIES:
                _tell(verdict)
            else:
                print(f"seed {seed}: {verdict.breaches[0]}")
    seconds = time.process_time() - began
    each = f"{1000 * seconds / len(seeds):.1f} ms each"
    print(f"{len(seeds):,} seeds in {seconds:.0f} s of one core, {each}; {broken} with breaches")
    print(f"{occurrences:,} runs; {faults.total():,} faults of {len(faults)} kinds: {_said(faults)}")
    return 1 if broken else 0


def _said(faults: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in faults.most_common())


def _tell(verdict: Verdict) -> int:
    print(f"seed {verdict.seed}: {verdict.occurrences} runs, {_said(verdict.faults)}")
    for at, text in verdict.story:
        print(f"{at:8.3f}  {text}")
    for breach in verdict.breaches:
        print(f"BREACH    {breach}")
    print(f"again: python -m tests.model --seed {verdict.seed}")
    return 1 if verdict.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
