"""Jobs as a file that reads back as the same jobs. The home of tomli-w."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tomli_w

from pgcron_runner.manifest.definition import Form
from pgcron_runner.manifest.environment import LEFT_ALONE, escape


def write_toml(forms: Mapping[str, Form]) -> str:
    """The text of a file with these jobs; "" where there are none."""
    tables = [
        tomli_w.dumps({"jobs": {name: _told(form)}}, multiline_strings=_is_plain(form)) for name, form in forms.items()
    ]
    return "\n".join(tables)


def _told(form: Form) -> dict[str, Any]:
    # Tables come last in TOML.
    ordered = sorted(form, key=lambda key: isinstance(form[key], dict))
    return {key: _value(key, form[key]) for key in ordered}


def _value(key: str, value: Any) -> Any:
    if key in LEFT_ALONE:
        return value
    return escape(json.dumps(value, ensure_ascii=False) if key == "args" and _has_null(value) else value)


def _has_null(value: Any) -> bool:
    """TOML has no null."""
    match value:
        case None:
            return True
        case dict():
            return any(map(_has_null, value.values()))
        case list():
            return any(map(_has_null, value))
    return False


def _is_plain(value: Any) -> bool:
    """Whether a text on several lines comes back as it is: TOML reads every end of a line as a line feed."""
    match value:
        case str():
            return "\r" not in value
        case dict():
            return all(map(_is_plain, value.values()))
        case list():
            return all(map(_is_plain, value))
    return True
