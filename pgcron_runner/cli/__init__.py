"""The command line: one module a noun. Errors become one or two plain lines and an exit code."""

from pgcron_runner.cli.app import main

__all__ = ["main"]
