"""A JSON Schema of a file of jobs, for editors, made from the list of fields."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from pgcron_runner.durations import format_duration
from pgcron_runner.manifest.definition import AFTER
from pgcron_runner.manifest.fields import COMMANDS, FIELDS, Field, Shape

_DURATION: Final = r"^\s*([0-9]+(\.[0-9]+)?\s*[A-Za-z]+\s*)+$"
_REFERENCE: Final = {"type": "string", "pattern": r"\$\{"}
_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_MANY: Final = (Shape.TEXTS, Shape.VARIABLES, Shape.OBJECT)


def json_schema() -> dict[str, Any]:
    """The schema of the whole file."""
    fields = {field.key: _property(field) for field in FIELDS}
    commands = {field.key: _property(field) for field in COMMANDS}
    job = {
        "type": "object",
        "properties": commands | fields | {AFTER: _after()},
        "oneOf": [{"required": [field.key]} for field in COMMANDS],
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Jobs of pgcron-runner",
        "type": "object",
        "properties": {
            "source": _TEXT | {"description": "What the jobs come from; else the name of the file."},
            "include": {"anyOf": [_TEXT, _TEXTS], "description": "Other files, such as jobs/*.toml."},
            "defaults": {
                "type": "object",
                "description": "What holds for each job that does not say it itself.",
                "properties": fields,
                "additionalProperties": False,
            },
            "jobs": {
                "type": "object",
                "description": "One table a job, by its name.",
                "propertyNames": {"minLength": 1, "maxLength": 100},
                "additionalProperties": job,
            },
        },
        "additionalProperties": False,
    }


def _property(field: Field) -> dict[str, Any]:
    shape = _shape(field)
    if field.shape not in (*_MANY, Shape.TEXT, Shape.LINES, Shape.MOMENT):
        shape = {"anyOf": [shape, _REFERENCE]}
    described = shape | {"description": field.meaning, "examples": [field.example]}
    if field.default is not None:
        described["default"] = _default(field.default)
    return described


def _shape(field: Field) -> dict[str, Any]:
    match field.shape:
        case Shape.LINES:
            return {"anyOf": [_TEXT, _TEXTS]}
        case Shape.DURATION:
            return {"type": "string", "pattern": _DURATION}
        case Shape.INTEGER | Shape.NUMBER:
            kind = "integer" if field.shape is Shape.INTEGER else "number"
            return {"type": kind, "minimum": field.least, "maximum": field.most}
        case Shape.FLAG:
            return {"type": "boolean"}
        case Shape.CHOICE:
            return {"enum": list(field.choices)}
        case Shape.TEXTS:
            return dict(_TEXTS)
        case Shape.VARIABLES:
            return {"type": "object", "additionalProperties": _TEXT}
        case Shape.OBJECT:
            return {"type": ["object", "string"]}
        case _:
            return dict(_TEXT)


def _default(value: Any) -> Any:
    return format_duration(value) if isinstance(value, timedelta) else value


def _after() -> dict[str, Any]:
    link = {
        "type": "object",
        "properties": {
            "job": _TEXT,
            "on": {"enum": ["succeeded", "failed", "finished"], "default": "succeeded"},
            "delay": {"type": "string", "pattern": _DURATION},
        },
        "required": ["job"],
        "additionalProperties": False,
    }
    either = {"anyOf": [_TEXT, link]}
    text = "Jobs that start this one each time they end."
    return {"anyOf": [_TEXT, link, {"type": "array", "items": either}], "description": text}
