"""The one error tree. Each class's docstring is its default message; it knows no other module."""

from __future__ import annotations


class PgcronError(Exception):
    """Something went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or _default_message(type(self)))


def _default_message(error: type[PgcronError]) -> str:
    # Takes 10 ms to import, and every job that imports us would pay for it.
    import inspect

    return inspect.getdoc(error) or error.__name__


class InvalidInput(PgcronError):
    """A value cannot be accepted.

    Carries the field, the value as given, what is wrong with it and a right example, so that every door
    (CLI, SQL, file) can tell the same story.
    """

    def __init__(self, field: str, value: object, problem: str, *, example: str | None = None) -> None:
        self.field = field
        self.value = value
        self.problem = problem
        self.example = example
        hint = f" For example: {example}" if example else ""
        super().__init__(f"{field}: {value!r} {problem}.{hint}")


class NotFound(PgcronError):
    """There is no such job, run or worker."""


class DatabaseUnavailable(PgcronError):
    """Postgres cannot be used at the moment; waiting may help."""


class DatabaseRefused(PgcronError):
    """Postgres refuses this role or this connection; waiting does not help."""


class SchemaMissing(DatabaseUnavailable):
    """This database has no pgcron schema yet. Run: pgcron-runner migrate"""


class SchemaOutdated(SchemaMissing):
    """The pgcron schema is older than this program needs. Run: pgcron-runner migrate"""


class SchemaTooNew(DatabaseRefused):
    """The schema is newer than this program understands. Upgrade pgcron-runner on this host."""


class EmbeddedPostgresError(PgcronError):
    """No Postgres server could be started on this machine."""


class GuardLost(PgcronError):
    """The guard process of this worker has ended; no command can be started."""
