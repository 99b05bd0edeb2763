"""The command line: one module a noun. Errors become one or two plain lines and an exit code."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing's own takes 5 ms to import
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """The console script. Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
    if sys.argv[1:2] == ["step"]:
        # Jobs call it in loops: it does without what the others need.
        from pgcron_runner.cli import step

        sys.exit(step.main(sys.argv[2:]))
    from pgcron_runner.cli import app

    app.main()
