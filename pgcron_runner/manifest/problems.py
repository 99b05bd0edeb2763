"""What is wrong with a file of jobs, each with its place and a right example in the words of that file."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pgcron_runner.errors import InvalidInput, PgcronError
from pgcron_runner.manifest.fields import FIELD, Shape

_LONGEST_VALUE = 80
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _LONGEST_VALUE

_OTHERS = {"after": [{"job": "import", "on": "finished", "delay": "5m"}]}


class Dialect(StrEnum):
    """How a door writes a key and a value."""

    TOML = "toml"
    YAML = "yaml"
    PYTHON = "python"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one key of a job, or with the job (None). `example` is a right value of that key."""

    key: str | None
    message: str
    example: Any = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault at its place: `jobs.toml:12`, and the path of the key there."""

    place: str
    path: str
    message: str
    example: str | None = None

    def __str__(self) -> str:
        said = f"{self.path}: {self.message}" if self.path else self.message
        hint = f" For example: {self.example}" if self.example else ""
        return f"{self.place}: {said.rstrip('.')}.{hint}"


class InvalidManifest(PgcronError):
    """Jobs that cannot be read; `problems` says why, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


class InvalidDefinition(PgcronError):
    """A job that cannot be accepted; `faults` says why."""

    def __init__(self, name: str, faults: Sequence[Fault]) -> None:
        self.name = name
        self.faults = tuple(faults)
        super().__init__(f"{name}: " + "; ".join(fault.message for fault in faults))


def fault_of(error: InvalidInput, key: str | None) -> Fault:
    """A refused value, told in a file's words. The error's own example is kept where it is a value of that key."""
    field = FIELD.get(key or "")
    example = field.example if field else _OTHERS.get(key or "")
    own = error.example
    if field and own and not own.startswith("-") and " or " not in own and ", " not in own:
        if field.shape in (Shape.TEXT, Shape.LINES, Shape.DURATION):
            example = own.strip("'")
        elif field.shape is Shape.OBJECT and own.strip("'").startswith("{"):
            example = json.loads(own.strip("'"))
    return Fault(key, f"{shorten(error.value)} {error.problem}", example)


def shorten(value: object) -> str:
    """A value as it was given, cut in the middle where it is long."""
    return _REPR.repr(str(value) if isinstance(value, str) else value)


def written(key: str, value: Any, dialect: Dialect) -> str:
    """`timeout = "50s"`: a line of a file."""
    match dialect:
        case Dialect.TOML:
            return f"{key} = {_toml(value)}"
        case Dialect.YAML:
            return f"{key}: {json.dumps(value, ensure_ascii=False)}"
        case Dialect.PYTHON:
            return f"{key}={value!r}"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
