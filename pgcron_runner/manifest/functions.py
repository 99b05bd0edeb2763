"""Jobs from an application's own functions: `myapp.jobs`, or `myapp.jobs:nightly`."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from pgcron_runner.declaring import DECLARED, Declaration
from pgcron_runner.errors import InvalidInput, PgcronError
from pgcron_runner.manifest.definition import Definition
from pgcron_runner.manifest.document import Manifest, placed
from pgcron_runner.manifest.problems import Dialect, Fault, InvalidDefinition, InvalidManifest, Problem
from pgcron_runner.manifest.reading import read_definition

Function = Callable[..., Any]
_FIELD = "source"
_EXAMPLE = "myapp.jobs or myapp.jobs:nightly"


class NotImportable(PgcronError):
    """The application's own code cannot be imported."""


def read_functions(target: str) -> Manifest:
    """The jobs of a module, or of what it has there: a function, a list of them, another module.

    Modules are found as by `python -m`: beside the current folder too. Raises InvalidInput, NotImportable,
    InvalidManifest.
    """
    module_name, colon, attribute = target.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or (colon and not attribute):
        raise InvalidInput(_FIELD, target, "is neither a file nor a module", example=f"jobs.toml, {_EXAMPLE}")
    found = _find(module_name, attribute, target)
    functions = list(_functions_of(found))
    if not functions:
        example = '@job(schedule="0 3 * * *", timezone="UTC")'
        raise InvalidInput(_FIELD, target, "has no function with @job", example=example)
    return _manifest(module_name, functions)


def definition_of(function: Function) -> Definition:
    """The checked job of one function. Raises InvalidManifest."""
    declaration = _declaration_of(function)
    if declaration is None:
        raise InvalidInput(
            "function", function.__qualname__, "is not declared", example="@job(schedule=..., timezone=...)"
        )
    return _manifest(function.__module__, [function]).definitions[0]


def _find(module_name: str, attribute: str, target: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise NotImportable(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from error
    for name in attribute.split(".") if attribute else ():
        if not hasattr(found, name):
            raise InvalidInput(_FIELD, target, f"cannot be found: there is no {name}", example=_EXAMPLE)
        found = getattr(found, name)
    return found


def _functions_of(found: Any) -> Iterator[Function]:
    if _declaration_of(found) is not None:
        yield found
    elif isinstance(found, ModuleType):
        # What it has imported from elsewhere is that module's.
        yield from (
            value
            for value in vars(found).values()
            if _declaration_of(value) is not None and getattr(value, "__module__", None) == found.__name__
        )
    elif isinstance(found, Iterable) and not isinstance(found, str | bytes):
        for item in found:
            yield from _functions_of(item)


def _declaration_of(value: Any) -> Declaration | None:
    declaration = getattr(value, DECLARED, None) if callable(value) else None
    return declaration if isinstance(declaration, Declaration) else None


def _manifest(module_name: str, functions: list[Function]) -> Manifest:
    named: dict[str, Function] = {}
    definitions: list[Definition] = []
    problems: list[Problem] = []

    def where(name: str, key: str | None) -> tuple[str, str]:
        return _place(named[name]), f"{name}.{key}" if key else name

    for function in functions:
        declaration = _declaration_of(function)
        assert declaration is not None
        name = declaration.name or function.__name__.replace("_", "-")
        if name in named and named[name] is not function:
            problems.append(Problem(_place(function), name, f"there is a job of this name in {_place(named[name])}"))
            continue
        named[name] = function
        try:
            definitions.append(read_definition(name, declaration.fields | {"python": _target(function)}))
        except InvalidDefinition as error:
            faults = [_own(fault) for fault in error.faults]
            problems += [placed(*where(name, fault.key), fault, Dialect.PYTHON) for fault in faults]
        except InvalidInput as error:
            problems.append(Problem(_place(function), name, error.problem))
    if problems:
        raise InvalidManifest(problems)
    return Manifest(f"python:{module_name}", tuple(definitions), where, Dialect.PYTHON)


def _own(fault: Fault) -> Fault:
    # What goes without saying here has no example.
    return Fault(fault.key, fault.message) if fault.key == "python" else fault


def _target(function: Function) -> str:
    """How a worker finds it. Raises InvalidInput where it could not."""
    if "<" in function.__qualname__:
        raise InvalidInput(
            "python", function.__qualname__, "is a function within a function: no worker could import it"
        )
    if function.__module__ == "__main__":
        raise InvalidInput(
            "python", function.__qualname__, "is in a program, not in a module: no worker could import it"
        )
    return f"{function.__module__}:{function.__qualname__}"


def _place(function: Function) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return function.__module__
    path = os.path.relpath(code.co_filename)
    return f"{code.co_filename if path.startswith('..') else path}:{code.co_firstlineno}"
