"""What a sync does or would do, in words: one job after the other, with what differs and when it is due next."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from pgcron_runner.cli.output import (
    Cell,
    Styled,
    clean,
    note,
    plural,
    print_facts,
    print_heading,
    say,
    zone_of,
)
from pgcron_runner.cli.upcoming import Rule, Slot, in_words, next_slots, print_slots
from pgcron_runner.errors import InvalidInput
from pgcron_runner.execution.http.urls import shown as without_password
from pgcron_runner.manifest.applying import KEPT_FOR_DAYS, Outcome
from pgcron_runner.manifest.document import Manifest
from pgcron_runner.manifest.fields import KINDS, WHEN
from pgcron_runner.manifest.plan import Change, Difference, Kind
from pgcron_runner.model import DstGap, DstRepeat, ExcludedDays

_TIMES: Final = 3
# More nobody reads; --json has them all.
_TOLD: Final = 20
_LONGEST: Final = 300
_TICK: Final = timedelta(microseconds=1)
_SIGNS: Final = {
    Kind.NEW: ("+", "green"), Kind.RETURNED: ("+", "green"), Kind.CHANGED: ("~", "yellow"), Kind.ADOPTED: ("=", "cyan"),
    Kind.REMOVED: ("-", "red"), Kind.GONE: ("?", "yellow"), Kind.EDITED: ("!", "red"), Kind.FOREIGN: ("!", "red"),
}  # fmt: skip
_COUNTED: Final = (
    (Kind.NEW, "new"), (Kind.RETURNED, "back"), (Kind.CHANGED, "changed"), (Kind.ADOPTED, "taken over"),
    (Kind.REMOVED, "removed"), (Kind.GONE, "no longer there"), (Kind.EDITED, "edited by hand"),
    (Kind.FOREIGN, "made by others"), (Kind.SAME, "as before"),
)  # fmt: skip


class Report:
    """Tells the outcome of a sync."""

    def __init__(self, manifest: Manifest, outcome: Outcome, *, dry_run: bool) -> None:
        self._manifest = manifest
        self._file = manifest.source.partition(":")[2]
        self._outcome = outcome
        self._dry_run = dry_run
        self._days = {
            calendar.name: tuple(ExcludedDays(calendar.name, *days) for days in calendar.days)
            for calendar in outcome.calendars
        }

    @property
    def left_alone(self) -> bool:
        """Whether the table is not what the file says."""
        return any(change.kind.is_left_alone for change in self._outcome.changes)

    # ------------------------------------------------------------------------------------------- for people

    def print(self) -> None:
        """On standard output what differs, and a line that counts; beside it what to do about what was left alone."""
        told = [change for change in self._outcome.changes if change.kind is not Kind.SAME]
        for change in told[:_TOLD]:
            self._print(change)
        if len(told) > _TOLD:
            say(f"… and {plural(len(told) - _TOLD, 'more job')}; --json tells of all.")
        say(self._counts())
        self._print_notes()

    def _print(self, change: Change) -> None:
        sign, style = _SIGNS[change.kind]
        name = clean(change.name)
        print_facts([(f"{sign} {name}", Styled(self._sentence(change), style))])
        facts = [fact for difference in change.differences for fact in self._facts(change, difference)]
        if change.kind is not Kind.RETURNED and facts:
            print_facts(facts)
        before, after = self._times(change)
        if before is not None and change.stored is not None:
            self._print_times("Next times before", before, change.stored.columns)
        if after is not None and change.wanted is not None:
            title = "" if change.kind is Kind.NEW else "Next times then" if self._dry_run else "Next times now"
            self._print_times(title, after, change.wanted.columns)

    def _sentence(self, change: Change) -> str:
        match change.kind:
            case Kind.NEW:
                return self._new(change)
            case Kind.RETURNED:
                return f"back in {self._file}"
            case Kind.ADOPTED:
                return f"made by {self._maker(change)}; as {self._file} says, and its own from now on{_held(change)}"
            case Kind.REMOVED:
                day = self._outcome.now + timedelta(days=KEPT_FOR_DAYS)
                return f"no longer in {self._file}: disabled, and deleted on {day:%Y-%m-%d}; its history stays"
            case Kind.GONE:
                return f"no longer in {self._file}; --prune removes it"
            case Kind.EDITED:
                return "edited by hand since the last sync, and left alone"
            case Kind.FOREIGN:
                what = "and different" if change.differences else "and theirs"
                return f"made by {self._maker(change)}, {what}: left alone"
            case _:
                return f"changed{_held(change)}"

    def _new(self, change: Change) -> str:
        assert change.wanted is not None
        columns = change.wanted.columns
        words = in_words(_rule(columns, change.name)) or clean(columns["schedule"])
        disabled = "" if change.enabled else ", disabled"
        return f"new, {columns['kind']}, {words[0].lower()}{words[1:]}, {columns['timezone']}{disabled}"

    def _maker(self, change: Change) -> str:
        return clean(change.stored.source) if change.stored else ""

    def _facts(self, change: Change, difference: Difference) -> list[tuple[str, Cell]]:
        if difference.key == "env":
            return [("  env", _variables(difference.old or {}, difference.new or {}))]
        old, new = _text(difference.key, difference.old), _text(difference.key, difference.new)
        if change.kind.is_left_alone:
            there = "as it was made" if change.wanted is None else f"in {self._file}"
            hint = " (by hand)" if difference.by_hand else ""
            return [(f"  {difference.key}", f"{old} here{hint}, {new} {there}")]
        return [(f"  {difference.key}", f"{old} → {new}")]

    def _print_times(self, title: str, slots: Sequence[Slot], columns: Mapping[str, Any]) -> None:
        if title:
            print_heading(title)
        if slots:
            print_slots(slots, zone_of(columns["timezone"]), self._outcome.now)
        elif title:
            say("It is not due by itself.")

    def _counts(self) -> str:
        changes = self._outcome.changes
        counts = [(sum(change.kind is kind for change in changes), words) for kind, words in _COUNTED]
        told = ", ".join(f"{count:,} {words}" for count, words in counts if count) or "no jobs"
        return f"{told}.{' Nothing was written: --dry-run.' if self._dry_run else ''}"

    def _print_notes(self) -> None:
        if self.left_alone:
            note("Note: what was left alone is overwritten with --force; or let the file say it too.")
        held = [change.name for change in self._outcome.changes if change.held]
        if held:
            names = ", ".join(map(clean, held[:5])) + (", …" if len(held) > 5 else "")
            note(f"Note: disabled by hand, and left so: {names}. Go on with: pgcron-runner job resume NAME")

    # ------------------------------------------------------------------------------------------- next times

    def _times(self, change: Change) -> tuple[list[Slot] | None, list[Slot] | None]:
        """The next times before and after; None where they are not worth telling."""
        when = change.kind is Kind.CHANGED and any(d.key in (*WHEN, "enabled") for d in change.differences)
        if change.kind not in (Kind.NEW, Kind.RETURNED) and not when:
            return None, None
        before = self._slots(change.stored.columns, enabled=change.stored.columns["enabled"]) if change.stored else None
        assert change.wanted is not None
        return before if when else None, self._slots(
            {**change.wanted.columns, "name": change.name}, enabled=change.enabled
        )

    def _slots(self, columns: Mapping[str, Any], *, enabled: bool) -> list[Slot]:
        if not enabled:
            return []
        after = self._outcome.now
        if columns["starts_at"] is not None:
            after = max(after, columns["starts_at"] - _TICK)
        excluded = tuple(days for calendar in columns["exclude"] for days in self._days.get(calendar, ()))
        try:
            return next_slots(_rule(columns, columns["name"], excluded), after, _TIMES)
        except InvalidInput:
            return []  # what is in the table may be wrong

    # ------------------------------------------------------------------------------------------- for programs

    def as_json(self) -> dict[str, Any]:
        """All changes; values of variables are nobody's business."""
        return {
            "source": self._manifest.source,
            "dry_run": self._dry_run,
            "counts": {kind.value: len(self._outcome.of(kind)) for kind, _ in _COUNTED if self._outcome.of(kind)},
            "changes": [self._change(change) for change in self._outcome.changes if change.kind is not Kind.SAME],
        }

    def _change(self, change: Change) -> dict[str, Any]:
        before, after = self._times(change)
        return {
            "name": change.name,
            "kind": change.kind.value,
            "source": change.stored.source if change.stored else None,
            "held": change.held,
            "differences": [_difference(difference) for difference in change.differences],
            "next_times_before": None if before is None else [slot.at for slot in before],
            "next_times": None if after is None else [slot.at for slot in after],
        }


def _held(change: Change) -> str:
    return "; disabled by hand, and left so" if change.held else ""


def _rule(columns: Mapping[str, Any], name: str, excluded: tuple[ExcludedDays, ...] = ()) -> Rule:
    gap, repeat = DstGap(columns["dst_gap"]), DstRepeat(columns["dst_repeat"])
    return Rule(columns["schedule"], columns["timezone"], name, gap, repeat, columns["ends_at"], excluded)


def _difference(difference: Difference) -> dict[str, Any]:
    def masked(value: Any) -> Any:
        return dict.fromkeys(value, "***") if difference.key == "env" and value else value

    return {
        "key": difference.key,
        "old": masked(difference.old),
        "new": masked(difference.new),
        "by_hand": difference.by_hand,
    }


def _variables(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Which variables differ, without their values: some are secrets, and this may be in a public log."""

    def became(name: str) -> str:
        return "gone" if name not in new else "new" if name not in old else "changed"

    told = [f"{name} {became(name)}" for name in {**old, **new} if old.get(name) != new.get(name)]
    return clean(", ".join(told))


def _text(key: str, value: Any) -> str:
    match value:
        case None | [] | {}:
            return "-"
        case bool():
            return str(value).lower()
        case str():
            text = without_password(value) if key in (KINDS["http"].value, "heartbeat_url") else value
        case [*_] if all(isinstance(item, str) for item in value):
            text = ", ".join(value)
        case _:
            text = json.dumps(value, ensure_ascii=False)
    text = clean(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
