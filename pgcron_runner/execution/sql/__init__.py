"""SQL jobs: their text, the sessions it runs on, and the ways in which its work is committed and recorded.

It must not know claims or leases.
"""

from pgcron_runner.execution.sql.runner import SqlRunner

__all__ = ["SqlRunner"]
