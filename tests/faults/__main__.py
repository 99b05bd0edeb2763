"""`python -m tests.faults --minutes 20 --seed 7`: the fault programme. Exit code 1 where a promise was broken."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.faults.programme.play import Order, play, tidy_up_on_term
from tests.faults.programme.report import report
from tests.faults.programme.storm import KINDS


def main() -> int:
    """Plays once and prints the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long the storm lasts; the calm comes on top")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--server", type=Path, help="the bin folder of another Postgres, such as 15's")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--only", default="", help=f"kinds of faults, or words of them: {', '.join(KINDS)}")
    parser.add_argument("--mutant", help="break the program on purpose: see tests.faults.mutants")
    parser.add_argument(
        "--rate", type=float, default=28.0, help="faults a minute that are begun; some find nothing to break"
    )
    parser.add_argument("--lease", type=float, default=4.0, help="seconds")
    given = parser.parse_args()
    tidy_up_on_term()
    only = tuple(word.strip() for word in given.only.split(",") if word.strip())
    order = Order(
        given.seed,
        given.minutes,
        given.workers,
        given.server,
        only,
        given.mutant,
        given.rate,
        given.lease,
    )
    played = play(order)
    print(report(played))
    return 1 if played.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
