"""`${NAME}` and `${NAME:-default}` in values: what the environment says when the file is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pgcron_runner.errors import InvalidInput

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?", re.ASCII)
# There ${NAME} is the shell's own, and a statement is what stands there.
LEFT_ALONE: Final = ("shell", "sql")


class FromEnvironment(str):
    """A text that the environment has a part in; a number or a flag may be written so. `said` is what the file says."""

    __slots__ = ("said",)
    said: str

    def __new__(cls, text: str, said: str) -> FromEnvironment:
        made = super().__new__(cls, text)
        made.said = said
        return made


def fill_in(key: str, value: Any, environ: Mapping[str, str]) -> Any:
    """The value of a key with all references replaced, also within lists and tables. Raises InvalidInput.

    As in a shell the default is taken where the variable is not set, or empty. `$${` is a plain `${`.
    """
    if key in LEFT_ALONE:
        return value
    match value:
        case str():
            return _filled(key, value, environ) if "${" in value else value
        case list():
            return [fill_in(key, item, environ) for item in value]
        case dict():
            return {name: fill_in(key, item, environ) for name, item in value.items()}
    return value


def escape(value: Any) -> Any:
    """What `fill_in` reads back as this value."""
    match value:
        case str():
            return value.replace("${", "$${")
        case list():
            return [escape(item) for item in value]
        case dict():
            return {name: escape(item) for name, item in value.items()}
    return value


def _filled(key: str, text: str, environ: Mapping[str, str]) -> str:
    refers = False

    def replace(found: re.Match[str]) -> str:
        nonlocal refers
        if found[0] == "$${":
            return "${"
        name, default = found["name"], found["default"]
        if name is None:
            problem = "has a ${ that names no variable; a plain ${ is written as $${"
            raise InvalidInput(key, text, problem, example="${NAME:-default}")
        refers = True
        value = environ.get(name) or default
        if value is None:
            problem = f"names a variable that {'is empty' if name in environ else 'is not set'}, and has no default"
            raise InvalidInput(key, text, problem, example=f"${{{name}:-default}}")
        return value

    filled = _REFERENCE.sub(replace, text)
    return FromEnvironment(filled, text) if refers else filled
