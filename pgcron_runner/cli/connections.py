"""Which other databases SQL jobs may name: `--connection NAME=…` and PGCRON_CONNECTION_<NAME>.

A connection string may hold a password: none is ever repeated, also not a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pgcron_runner.errors import InvalidInput

_VARIABLE = "PGCRON_CONNECTION_"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
_EXAMPLE = "--connection reporting=env:REPORTING_DSN"


def parse_connections(given: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Name -> connection string; what is given wins over the environment. Raises InvalidInput."""
    named = {
        variable.removeprefix(_VARIABLE).lower(): value
        for variable, value in environ.items()
        if variable.startswith(_VARIABLE) and value
    }
    seen: set[str] = set()
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not value:
            raise InvalidInput("connection", "(not shown)", "is not NAME=DSN or NAME=env:VARIABLE", example=_EXAMPLE)
        if name in seen:
            raise InvalidInput("connection", name, "is given twice", example=_EXAMPLE)
        seen.add(name)
        named[name] = value
    return {_checked(name): _resolved(name, value, environ) for name, value in sorted(named.items())}


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        # What stands before the first = may be the beginning of a connection string.
        shown = name if re.fullmatch(r"[\w-]{1,63}", name) else "(not shown)"
        problem = "is not the name of a connection: small letters, digits, _ and -"
        raise InvalidInput("connection", shown, problem, example=_EXAMPLE)
    return name


def _resolved(name: str, value: str, environ: Mapping[str, str]) -> str:
    """The connection string, or that of the variable which is named instead of it."""
    reference, _, variable = value.partition(":")
    if reference != "env":
        return value
    if not environ.get(variable):
        problem = f"names the variable {variable}, which is not set" if variable else "names no variable"
        raise InvalidInput("connection", name, problem, example=_EXAMPLE)
    return environ[variable]
