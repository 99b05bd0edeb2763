"""What can be a result."""

from __future__ import annotations

import pytest

from pgcron_runner.execution.result import BadResultError, storable_result


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def test_what_postgres_would_choke_on_is_refused() -> None:
    assert storable_result(nested(500)) == nested(500)
    with pytest.raises(BadResultError, match="it is nested more than 500 levels deep"):
        storable_result({"deep": nested(500)})


def test_brackets_in_texts_and_beside_each_other_are_no_depth() -> None:
    flat = [[], {}, '"[\\', "[" * 600] * 600
    assert storable_result(flat) == flat
