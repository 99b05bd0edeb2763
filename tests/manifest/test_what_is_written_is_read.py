"""What `export` writes, `sync` reads back as the same jobs; and each door knows the same fields."""

from __future__ import annotations

import re
import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pgcron_runner.durations import format_duration
from pgcron_runner.manifest.definition import Form
from pgcron_runner.manifest.document import read_file
from pgcron_runner.manifest.fields import FIELDS
from pgcron_runner.manifest.reading import read_definition
from pgcron_runner.manifest.schema import json_schema
from pgcron_runner.manifest.writing import write_toml

# Postgres has no NUL, and UTF-8 no lone surrogates.
_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
_COMMAND = _TEXT.filter(lambda text: text.strip() != "")
_VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(_TEXT, values, max_size=3),
    max_leaves=8,
)
_DURATION = st.timedeltas(timedelta(seconds=1), timedelta(days=90)).map(format_duration)
_NAME = st.from_regex(r"[A-Za-zäö0-9][A-Za-z0-9 ._:\"'\[\]-]{0,20}[A-Za-z0-9]", fullmatch=True)
_FORM = st.fixed_dictionaries(
    {
        "schedule": st.sampled_from(["0 3 * * *", "@every 90s", "0 3 * * *\n30 4 * * sun"]),
        "timezone": st.just("UTC"),
    },
    optional={
        "args": st.dictionaries(_TEXT, _VALUE, max_size=3).filter(bool),
        "env": st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), _TEXT, min_size=1, max_size=3),
        "timeout": _DURATION.filter(lambda text: text != "1h"),
        "late_after": _DURATION,
        "tags": st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=1, max_size=3, unique=True),
        "overlap": st.sampled_from(["queue_one", "queue_all", "replace", "allow"]),
        "idempotent": st.just(True),
        "priority": st.integers(1, 100),
    },
)
_COMMANDS = st.one_of(_COMMAND.map(lambda text: {"shell": text}), _COMMAND.map(lambda text: {"sql": text}))


@given(st.dictionaries(_NAME, st.tuples(_COMMANDS, _FORM).map(lambda pair: pair[0] | pair[1]), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_back_as_it_was(forms: dict[str, Form]) -> None:
    told = {name: read_definition(name, form).form for name, form in forms.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.toml"
        path.write_bytes(write_toml(told).encode())
        # Nothing is taken from the environment, however much a text looks like that.
        read = read_file(path, {})
    assert {definition.name: definition.form for definition in read.definitions} == told


def test_functions_files_and_editors_know_the_same_fields() -> None:
    from pgcron_runner import declaring

    source = Path(declaring.__file__).read_text(encoding="utf-8")
    known = {field.key for field in FIELDS} - {"schedule", "timezone"}
    body = source.split("class JobFields")[1].split("DECLARED")[0]
    declared = set(re.findall(r"^ {8}(\w+): ", body, re.MULTILINE))
    assert declared == known | {"after"}
    text = str(json_schema())
    assert [key for key in known if f"'{key}'" not in text] == []
