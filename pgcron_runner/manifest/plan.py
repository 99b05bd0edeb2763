"""What a sync would do: wanted jobs beside those in the table, one decision each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pgcron_runner.manifest.definition import AFTER, Definition, Form, form_of
from pgcron_runner.store.chains import Chain
from pgcron_runner.store.definitions import Stored

# A pause by hand is no edit of the definition: it outlives a deploy.
_HELD = "enabled"


class Kind(StrEnum):
    """What becomes of a job."""

    NEW = "new"
    CHANGED = "changed"
    RETURNED = "returned"  # its file had it no longer, and has it again
    ADOPTED = "adopted"  # it is as the file says, and was made otherwise
    SAME = "same"
    REMOVED = "removed"  # its file has it no longer: disabled, and deleted in two weeks
    GONE = "gone"  # the same, without --prune
    EDITED = "edited"  # by hand since the last sync, and left alone
    FOREIGN = "foreign"  # made by somebody else, and left alone

    @property
    def is_left_alone(self) -> bool:
        return self in (Kind.EDITED, Kind.FOREIGN)


@dataclass(frozen=True, slots=True)
class Difference:
    """One key: what the table has, and what is wanted; None: not said. `by_hand`: edited since the last sync."""

    key: str
    old: Any
    new: Any
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one job. `held`: it was disabled by hand, and stays so. `note`: its record of the file is old."""

    kind: Kind
    name: str
    stored: Stored | None = None
    wanted: Definition | None = None
    differences: tuple[Difference, ...] = ()
    enabled: bool = True
    held: bool = False
    note: bool = False
    chains_before: tuple[Chain, ...] = ()


def plan(
    wanted: Sequence[Definition],
    stored: Iterable[Stored],
    chains: Iterable[Chain],
    source: str,
    *,
    prune: bool = False,
    force: bool = False,
) -> list[Change]:
    """A change for each job that is wanted, in that order, and then for each that `source` has no longer."""
    there = {job.name: job for job in stored}
    into: dict[str, list[Chain]] = {}
    for chain in chains:
        into.setdefault(chain.downstream, []).append(chain)
    names = {definition.name for definition in wanted}
    changes = [_decide(one, there.get(one.name), into.get(one.name, ()), source, force=force) for one in wanted]
    lost = [job for name, job in there.items() if name not in names and _is_ours(job, source) and not job.removed_at]
    return changes + [_farewell(job, into.get(job.name, ()), prune=prune, force=force) for job in lost]


def is_another_file(changes: Sequence[Change], source: str) -> bool:
    """Whether all that `source` ever made would go and nothing stay: most likely another file of the same name."""
    removed = any(change.kind is Kind.REMOVED for change in changes)
    return removed and not any(
        change.wanted is not None and change.stored is not None and change.stored.source == source for change in changes
    )


def _is_ours(job: Stored, source: str) -> bool:
    return job.source == source and job.synced is not None


def _decide(wanted: Definition, stored: Stored | None, into: Sequence[Chain], source: str, *, force: bool) -> Change:
    enabled = bool(wanted.columns[_HELD])
    if stored is None:
        return Change(Kind.NEW, wanted.name, None, wanted, enabled=enabled)
    noted = stored.synced if _is_ours(stored, source) else None
    differences = _differences(form_of(stored.columns, into), wanted.form, noted)
    change = Change(Kind.SAME, wanted.name, stored, wanted, differences, enabled, chains_before=tuple(into))
    if noted is None:
        return _take_over(change, stored, force=force)
    if stored.removed_at is not None:
        return replace(change, kind=Kind.RETURNED)
    return _update(change, stored, noted, force=force)


def _take_over(change: Change, stored: Stored, *, force: bool) -> Change:
    """A job that the file did not make: it is the file's where it is as the file says, or where somebody insists."""
    is_free = stored.synced is None or not stored.source.startswith(("file:", "python:"))
    enabled = bool(stored.columns[_HELD])
    change = replace(change, enabled=enabled and change.enabled, held=change.enabled and not enabled)
    if change.differences or not is_free:
        return replace(change, kind=Kind.CHANGED if force else Kind.FOREIGN)
    return replace(change, kind=Kind.ADOPTED)


def _update(change: Change, stored: Stored, noted: Form, *, force: bool) -> Change:
    is_enabled = bool(stored.columns[_HELD])
    if is_enabled != change.enabled:
        if noted.get(_HELD, True) == change.enabled:
            change = replace(change, enabled=is_enabled, held=True)
        else:
            turned = Difference(_HELD, is_enabled, change.enabled)
            change = replace(change, differences=(*change.differences, turned))
    if any(difference.by_hand for difference in change.differences) and not force:
        return replace(change, kind=Kind.EDITED)
    if change.differences:
        return replace(change, kind=Kind.CHANGED)
    assert change.wanted is not None
    return replace(change, note=noted != change.wanted.form)


def _farewell(job: Stored, into: Sequence[Chain], *, prune: bool, force: bool) -> Change:
    if not prune:
        return Change(Kind.GONE, job.name, job)
    noted = job.synced or {}
    edited = _differences(form_of(job.columns, into), noted, noted)
    if edited and not force:
        return Change(Kind.EDITED, job.name, job, None, edited)
    return Change(Kind.REMOVED, job.name, job)


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any], noted: Mapping[str, Any] | None
) -> tuple[Difference, ...]:
    """Keys whose values differ, as the job has them and then as they are wanted; `noted` is what sync wrote last."""
    keys = [key for key in dict.fromkeys((*before, *after)) if key != _HELD and before.get(key) != after.get(key)]
    return tuple(
        Difference(
            key,
            before.get(key),
            after.get(key),
            by_hand=noted is not None and before.get(key) != noted.get(key),
        )
        for key in keys
    )


def wanted_chains(change: Change) -> tuple[tuple[Chain, ...], tuple[Chain, ...]]:
    """The chains to remove and those to write."""
    if change.wanted is None or (not any(d.key == AFTER for d in change.differences) and change.stored is not None):
        return (), ()
    before, after = set(change.chains_before), set(change.wanted.after)
    upstreams = {chain.upstream for chain in after}
    return tuple(chain for chain in before if chain.upstream not in upstreams), tuple(after - before)
