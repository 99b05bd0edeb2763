"""The home of croniter: one plain field to the values it stands for. It knows neither dates nor zones."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

# croniter counts its columns as minute, hour, day of month, month, day of week.
_COLUMNS: Final = 5


# croniter takes 130 us a call, and people write the same few ranges and steps.
@lru_cache(maxsize=20_000)
def expand(column: int, text: str, everything: tuple[int, ...]) -> tuple[int, ...]:
    """The sorted values of one field as croniter reads it; `everything` is what `*` means there.

    `text` is `*` or `a-b` with a < b, with or without a step, and nothing else: `fields` keeps from croniter
    what it misreads (equal and stepped wrapping ranges, `R`) or does not know (`LW`, `5L`).
    """
    if text == "*":
        return everything
    # Here, because it takes longer to load than a command that reads plain fields takes to run.
    from croniter import croniter

    fields = ["*"] * _COLUMNS
    fields[column] = text
    expanded, _ = croniter.expand(" ".join(fields))
    values = expanded[column]
    if values == ["*"]:  # a step of 1
        return everything
    return tuple(sorted(value for value in values if isinstance(value, int)))
