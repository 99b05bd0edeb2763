"""`python -m tests.faults.mutants.worker NAME worker --dsn …`: the program, broken in one place."""

from __future__ import annotations

import sys

from tests.faults.mutants.catalogue import find


def main() -> None:
    """Breaks it before anything of it that matters has been imported, and runs it."""
    name = sys.argv.pop(1)
    find(name).patch()
    from pgcron_runner.cli import main as run

    run()


if __name__ == "__main__":
    main()
