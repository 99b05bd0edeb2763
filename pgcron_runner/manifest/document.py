"""A file of jobs and those that it includes: read, filled in from the environment, checked. It knows no database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from glob import has_magic
from pathlib import Path
from typing import Any, Final

from pgcron_runner.errors import InvalidInput
from pgcron_runner.manifest import toml, yaml
from pgcron_runner.manifest.definition import AFTER, Definition
from pgcron_runner.manifest.environment import FromEnvironment, fill_in
from pgcron_runner.manifest.fields import COMMANDS
from pgcron_runner.manifest.links import find_circle
from pgcron_runner.manifest.problems import (
    Dialect,
    Fault,
    InvalidDefinition,
    InvalidManifest,
    Problem,
    fault_of,
    written,
)
from pgcron_runner.manifest.reading import read_definition, unknown_keys

_TOP: Final = ("source", "include", "defaults", "jobs")
# Of one job alone.
_NO_DEFAULT: Final = (*(command.key for command in COMMANDS), AFTER)
_MOST_FILES: Final = 1000
# Whoever has more has made one mistake many times; and each place is looked for in the whole file.
_MOST_PROBLEMS: Final = 50
_READERS: Final = {".toml": toml, ".yaml": yaml, ".yml": yaml}


@dataclass(frozen=True, slots=True)
class Manifest:
    """All jobs that somebody wants, and what they are said to come from. `where` tells the place of a job's key."""

    source: str
    definitions: tuple[Definition, ...]
    where: Callable[[str, str | None], tuple[str, str]]
    dialect: Dialect

    def problem(self, name: str, fault: Fault) -> Problem:
        """A fault that only the database could show, at its place."""
        place, path = self.where(name, fault.key)
        return placed(place, path, fault, self.dialect)


def placed(place: str, path: str, fault: Fault, dialect: Dialect) -> Problem:
    """A fault at a place, with its example in the words of that place."""
    known = fault.key is not None and fault.example is not None
    return Problem(place, path, fault.message, written(str(fault.key), fault.example, dialect) if known else None)


def read_file(path: Path, environ: Mapping[str, str]) -> Manifest:
    """The jobs of a file and of those that it includes. Raises InvalidManifest with all that is wrong."""
    files = _Files()
    files.read(path, {}, None)
    definitions: list[Definition] = []
    for name, said in files.jobs.items():
        if len(files.problems) > _MOST_PROBLEMS:
            break
        if (definition := files.define(name, said, environ)) is not None:
            definitions.append(definition)
    circle = find_circle(chain for definition in definitions for chain in definition.after)
    if circle:
        files.add(circle[-1], Fault(AFTER, f"would start each other for ever: {' → '.join(reversed(circle))}"))
    if files.problems:
        raise InvalidManifest(list(dict.fromkeys(files.problems)))
    return Manifest(f"file:{files.source or path.name}", tuple(definitions), files.where, files.dialect(None))


@dataclass(frozen=True, slots=True)
class _Said:
    """What a file says of a job, and what it takes from the defaults."""

    own: Mapping[str, Any]
    defaults: Mapping[str, Any]
    file: _File


@dataclass(frozen=True, slots=True)
class _File:
    """One file. `reader` knows its language."""

    path: Path
    text: str
    reader: Any

    def place(self, *keys: str) -> str:
        line = self.reader.line_of(self.text, keys)
        return f"{self.path}:{line}" if line else str(self.path)


@dataclass
class _Files:
    """The files on their way: what was found in them, and what is wrong with them."""

    jobs: dict[str, _Said] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    source: str | None = None
    _first: _File | None = None
    _seen: dict[Path, Path] = field(default_factory=dict)
    _of_defaults: dict[str, _File] = field(default_factory=dict)

    # ------------------------------------------------------------------------------------ reading

    def read(self, path: Path, defaults: Mapping[str, Any], by: _File | None) -> None:
        """One file, and then those that it includes; `defaults` are those of the file that includes it."""
        if path.resolve() in self._seen or len(self._seen) >= _MOST_FILES:
            self._refuse(by or path, ("include",), f"{path} is included already")
            return
        self._seen[path.resolve()] = path
        loaded = self._load(path, by)
        if loaded is None:
            return
        file, content = loaded
        self._first = self._first or file
        for key in content:
            if key not in _TOP:
                hint = "; a job is written as a table [jobs.NAME]" if isinstance(content[key], dict) else ""
                self._refuse(file, (str(key),), f"{key}: is none of {', '.join(_TOP)}{hint}")
        self._read_source(file, content, is_first=by is None)
        defaults = self._merged(file, defaults, content)
        for name, own in self._table(file, content, "jobs").items():
            self._take(file, str(name), own, defaults)
        for other in self._included(file, content):
            self.read(other, defaults, file)

    def _load(self, path: Path, by: _File | None) -> tuple[_File, dict[str, Any]] | None:
        reader = _READERS.get(path.suffix.lower())
        if reader is None:
            self._refuse(path, (), "is no file of jobs: its name ends neither with .toml nor with .yaml", "jobs.toml")
            return None
        try:
            text = path.read_bytes().decode("utf-8-sig")
            return _File(path, text, reader), reader.parse(text)
        except OSError as error:
            place = by.place("include") if by else str(path)
            self.problems.append(Problem(place, str(path) if by else "", error.strerror or str(error)))
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            self.problems.append(Problem(f"{path}:{line}", "", "the file is not in UTF-8"))
        except reader.SyntaxFault as error:
            self.problems.append(Problem(f"{path}:{error.line}" if error.line else str(path), "", error.message))
        return None

    def _read_source(self, file: _File, content: Mapping[str, Any], *, is_first: bool) -> None:
        source = content.get("source")
        if source is None:
            return
        if not is_first:
            self._refuse(file, ("source",), "source: is said by the file that includes this one")
        elif not isinstance(source, str) or not source.strip() or not source.isprintable() or len(source) > 100:
            self._refuse(file, ("source",), f"source: {source!r} is not a name", 'source = "billing"')
        else:
            self.source = source.strip()

    def _merged(self, file: _File, inherited: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
        own = self._table(file, content, "defaults")
        for key in own:
            self._of_defaults[str(key)] = file
        for key in set(own) & set(_NO_DEFAULT):
            self._refuse(file, ("defaults", key), f"defaults.{key}: belongs to a job, not to all of them")
        for fault in unknown_keys(own):
            path = f"defaults.{fault.key}"
            self.problems.append(placed(file.place("defaults", str(fault.key)), path, fault, self.dialect(file)))
        return with_defaults(own, inherited)

    def _table(self, file: _File, content: Mapping[str, Any], key: str) -> dict[str, Any]:
        table = content.get(key, {})
        if isinstance(table, dict):
            return table
        self._refuse(
            file, (key,), f"{key}: {table!r} is not a table", "[jobs.clean-up]" if key == "jobs" else "[defaults]"
        )
        return {}

    def _take(self, file: _File, name: str, own: Any, defaults: Mapping[str, Any]) -> None:
        if not isinstance(own, dict):
            example = 'sql = "analyze"'
            self._refuse(file, ("jobs", name), f"jobs.{name}: {own!r} is not a table", f"[jobs.{name}] and {example}")
        elif name in self.jobs:
            there = self.jobs[name].file.place("jobs", name)
            self._refuse(file, ("jobs", name), f"jobs.{name}: there is a job of this name in {there}")
        else:
            self.jobs[name] = _Said(own, defaults, file)

    def _included(self, file: _File, content: Mapping[str, Any]) -> Iterator[Path]:
        patterns = content.get("include", [])
        patterns = [patterns] if isinstance(patterns, str) else patterns
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            self._refuse(
                file, ("include",), f"include: {patterns!r} is not a list of files", 'include = ["jobs/*.toml"]'
            )
            return
        for pattern in patterns:
            folder = file.path.parent
            if not has_magic(pattern):
                yield folder / pattern
            elif Path(pattern).is_absolute():
                self._refuse(
                    file, ("include",), f"include: {pattern!r} is not within the folder of this file", "jobs/*.toml"
                )
            else:
                yield from sorted(found for found in folder.glob(pattern) if found.resolve() != file.path.resolve())

    # ------------------------------------------------------------------------------------ checking

    def define(self, name: str, said: _Said, environ: Mapping[str, str]) -> Definition | None:
        """The job; None where something is wrong with it."""
        values: dict[str, Any] = {}
        faults: list[Fault] = []
        for key, value in with_defaults(said.own, said.defaults).items():
            try:
                values[key] = fill_in(key, value, environ)
            except InvalidInput as error:
                faults.append(Fault(key, fault_of(error, key).message, error.example))
        try:
            # Without what could not be filled in, which would only be missed.
            definition = read_definition(name, values)
        except InvalidDefinition as error:
            told = {fault.key for fault in faults}
            faults += [_with_origin(fault, values) for fault in error.faults if fault.key not in told]
        if not faults:
            return definition
        for fault in faults:
            self.add(name, fault)
        return None

    def add(self, name: str, fault: Fault) -> None:
        place, path = self.where(name, fault.key)
        self.problems.append(placed(place, path, fault, self.dialect(self.jobs[name].file)))

    def where(self, name: str, key: str | None) -> tuple[str, str]:
        """The place of a job's key, and its path there; in the defaults where the job itself does not say it."""
        said = self.jobs[name]
        if key is not None and key not in said.own and key in said.defaults:
            file = self._of_defaults.get(key, said.file)
            return file.place("defaults", key), f"defaults.{key}"
        path = f"jobs.{name}" if key is None else f"jobs.{name}.{key}"
        keys = ("jobs", name) if key is None or key not in said.own else ("jobs", name, key)
        return said.file.place(*keys), path

    def dialect(self, file: _File | None) -> Dialect:
        """How examples are written; None: as in the first file."""
        file = file or self._first
        return Dialect.YAML if file is not None and file.reader is yaml else Dialect.TOML

    def _refuse(self, where: _File | Path, keys: tuple[str, ...], message: str, example: str | None = None) -> None:
        place = str(where) if isinstance(where, Path) else where.place(*keys)
        self.problems.append(Problem(place, "", message, example))


def with_defaults(own: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What is said itself goes before; variables of `env` are added to those of the defaults."""
    merged = {**defaults, **own}
    both = own.get("env"), defaults.get("env")
    if all(isinstance(env, dict) for env in both):
        merged["env"] = {**defaults["env"], **own["env"]}
    return merged


def _with_origin(fault: Fault, values: Mapping[str, Any]) -> Fault:
    """The fault, with the words of the file where the environment made the value what it is."""
    value = values.get(fault.key or "")
    if not isinstance(value, FromEnvironment):
        return fault
    return Fault(fault.key, f"{fault.message}; it comes from {value.said}", fault.example)
