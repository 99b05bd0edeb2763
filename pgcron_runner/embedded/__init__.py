"""A real Postgres server of one's own for `demo`, `dev` and the tests: found, created, started and ended.

It knows Postgres' programs and files, and nothing of what the database will hold.
"""

from pgcron_runner.embedded.persistent import start_persistent
from pgcron_runner.embedded.programs import Programs, find_programs
from pgcron_runner.embedded.server import Server
from pgcron_runner.embedded.temporary import start_temporary

__all__ = ["Programs", "Server", "find_programs", "start_persistent", "start_temporary"]
