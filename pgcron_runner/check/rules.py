"""The list of rules: how one is written, and how people choose among them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from pgcron_runner.check.values import Case
from pgcron_runner.errors import InvalidInput

OfOne = Callable[[Case], str | None]
OfAll = Callable[[Sequence[Case]], Iterable[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule has one of two forms: what it says of one job, or, name by name, of all of them together."""

    code: str
    name: str
    page: str
    of_one: OfOne | None = None
    of_all: OfAll | None = None

    @property
    def summary(self) -> str:
        return self.page.split("\n\n")[0]

    @property
    def fix(self) -> str:
        """In one line."""
        return " ".join(self.page.split("Fix:", 1)[1].split("\n\n")[0].split())


RULES: Final[dict[str, Rule]] = {}
"""All of them, by code, in order once every family is loaded."""


def rule(code: str, name: str) -> Callable[[OfOne], OfOne]:
    """Makes a function over one case a rule."""

    def register(check: OfOne) -> OfOne:
        RULES[code] = Rule(code, name, inspect.getdoc(check) or "", of_one=check)
        return check

    return register


def rule_of_all(code: str, name: str) -> Callable[[OfAll], OfAll]:
    """Makes a function over all cases a rule."""

    def register(check: OfAll) -> OfAll:
        RULES[code] = Rule(code, name, inspect.getdoc(check) or "", of_all=check)
        return check

    return register


def find(word: str, *, field: str) -> list[Rule]:
    """The rules that a code, the beginning of one, or a name means. Raises InvalidInput."""
    found = [rule for rule in RULES.values() if rule.code.startswith(word.upper()) or rule.name == word.lower()]
    if found and word:
        return found
    near = get_close_matches(word.lower(), [rule.name for rule in RULES.values()], 1)
    problem = "is no rule: pgcron-runner check --explain all lists them"
    raise InvalidInput(field, word, problem, example=(near or ["PGC101"])[0])


def select(chosen: Sequence[str] = (), ignored: Sequence[str] = ()) -> list[Rule]:
    """The rules that are named, or all, less those that are ignored, by code."""
    wanted = {rule.code for word in chosen for rule in find(word, field="select")} or set(RULES)
    unwanted = {rule.code for word in ignored for rule in find(word, field="ignore")}
    return [RULES[code] for code in sorted(wanted - unwanted)]
