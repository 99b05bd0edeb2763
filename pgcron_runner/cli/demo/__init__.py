"""`pgcron-runner demo`: half a minute on a real Postgres with three workers, one of which is killed.

`command` is the door, `show` the house; `acts` is the play, on a `stage` of processes; `history` reads the rows,
`screen` shows them while it goes on, `report` tells how it went.
"""

from pgcron_runner.cli.demo.command import demo

__all__ = ["demo"]
