"""A checked job, and its form: what a file would say of it, and nothing that goes without saying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pgcron_runner.durations import format_duration
from pgcron_runner.manifest.fields import FIELDS, Shape
from pgcron_runner.store.chains import Chain

Form = dict[str, Any]
"""Keys as in a file, values as JSON has them. Two jobs are the same where their forms are equal."""

AFTER: Final = "after"


@dataclass(frozen=True, slots=True)
class Definition:
    """A job as somebody wants it: `columns` has kind, command and every field; `after` are the chains that start it."""

    name: str
    columns: Mapping[str, Any]
    after: tuple[Chain, ...] = ()

    @property
    def form(self) -> Form:
        return form_of(self.columns, self.after)


def form_of(columns: Mapping[str, Any], after: Sequence[Chain] = ()) -> Form:
    """What a file would say of this job: its command, when it is due, and what is not as by default."""
    form: Form = {columns["kind"]: columns["command"]}
    for field in FIELDS:
        value = columns[field.key]
        if value != field.default:
            form[field.key] = _written(field.shape, value)
    if after:
        form[AFTER] = [_link(chain) for chain in sorted(after, key=lambda chain: chain.upstream)]
    return form


def _written(shape: Shape, value: Any) -> Any:
    if shape is Shape.DURATION:
        return format_duration(value)
    if shape is Shape.MOMENT:
        return moment(value)
    return value


def moment(instant: datetime) -> str:
    """`2027-01-31T09:00:00Z`, with the fraction of a second if there is one."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _link(chain: Chain) -> str | dict[str, str]:
    link = {"job": chain.upstream}
    if chain.on_status != "succeeded":
        link["on"] = chain.on_status
    if chain.delay > timedelta(0):
        link["delay"] = format_duration(chain.delay)
    return link if len(link) > 1 else chain.upstream
