"""YAML: reading it with the safe loader, and finding the line of a key. The home of PyYAML."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

from yaml import MappingNode, Node, YAMLError, compose, load
from yaml.constructor import ConstructorError
from yaml.error import MarkedYAMLError

try:
    from yaml import CSafeLoader as _Fast
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _Fast  # type: ignore[assignment]

_HINT: Final = """; texts with * @ : # or { are quoted, such as schedule: "*/5 * * * *\""""


class SyntaxFault(Exception):
    """The text is not YAML, or not what can be taken from it. `line` 0: somewhere."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        self.message = message
        super().__init__(message)


class _Loader(_Fast):
    """Without what surprises: a key that stands twice is refused, and `on`, `off`, `yes`, `no` and 12:30 are texts."""

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise ConstructorError(None, None, f"the key {key.value!r} stands twice", key.start_mark)
            seen.add(key.value)
        made: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return made


_TRUTH: Final = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_PLAIN_INTEGER: Final = re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$")
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, {"tag:yaml.org,2002:bool": _TRUTH, "tag:yaml.org,2002:int": _PLAIN_INTEGER}.get(tag, pattern))
        for tag, pattern in resolvers
    ]
    for first, resolvers in _Fast.yaml_implicit_resolvers.items()
}


def parse(text: str) -> dict[str, Any]:
    """The mappings of a file; {} where it is empty. Raises SyntaxFault."""
    try:
        # A subclass of the safe loader.
        content = load(text, Loader=_Loader)  # noqa: S506
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        hint = "" if isinstance(error, ConstructorError) else _HINT
        raise SyntaxFault(mark.line + 1 if mark else 0, f"is not YAML: {error.problem}{hint}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise SyntaxFault(0, f"is not YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SyntaxFault(1, f"has no keys: jobs: … is expected, not {str(content)[:80]!r}")
    return content


def line_of(text: str, keys: tuple[str, ...]) -> int:
    """The line on which a key stands, or the nearest mapping around it; 0: there is none. Only for what is wrong."""
    node: Node | None = compose(text, Loader=_Loader)
    line = 0
    for key in keys:
        if not isinstance(node, MappingNode):
            break
        found = next(((name, value) for name, value in node.value if name.value == key), None)
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line
