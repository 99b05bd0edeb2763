"""One message for many alerts: how many jobs of what, then a line for each, the worst first. Pure; it sends nothing."""

from __future__ import annotations

from collections.abc import Sequence

from pgcron_runner.notify.events import Event, event_of
from pgcron_runner.notify.markup import Form, inline, one_line
from pgcron_runner.notify.messages import Facts, Message, job_of, reason_of, render, title_of

_MOST_JOBS = 40
_FEW = 5
_LONGEST_REASON = 120
_ROOM_FOR_REST = 20
_MORE = "More: "
_COMMAND = "pgcron-runner incident list"
Group = dict[str, list[Facts]]


def render_all(alerts: Sequence[Facts], form: Form, zone: str | None = None) -> Message:
    """The message for one alert or more, with presentable facts."""
    if len(alerts) == 1:
        return render(alerts[0], form, zone)
    groups = _grouped(alerts)
    return Message(_title(groups), "\n".join([*_lines(groups, form), _MORE + inline(_COMMAND, form)]))


def worst_of(alerts: Sequence[Facts]) -> Event:
    """The event that decides how the whole message looks."""
    return max((event_of(facts) for facts in alerts), key=lambda event: event.severity)


def _grouped(alerts: Sequence[Facts]) -> dict[Event, Group]:
    """By event, the worst first, and by job, in their order."""
    groups: dict[Event, Group] = {}
    for facts in alerts:
        groups.setdefault(event_of(facts), {}).setdefault(job_of(facts), []).append(facts)
    return dict(sorted(groups.items(), key=lambda pair: -pair[0].severity))


def _title(groups: dict[Event, Group]) -> str:
    counts = [(len(jobs), event) for event, jobs in groups.items()]
    parts = [f"{count} {_words(event, count)}" for count, event in counts]
    number, _, words = parts[0].partition(" ")
    return one_line(", ".join([f"{number} {'job' if number == '1' else 'jobs'} {words}", *parts[1:]]), 200)


def _words(event: Event, count: int) -> str:
    return event.one if count == 1 else event.many


def _lines(groups: dict[Event, Group], form: Form) -> list[str]:
    """Lines for all groups, within the room and the number of lines that there are; each group has a few of them."""
    lines: list[str] = []
    left = _MOST_JOBS
    for event, jobs in groups.items():
        if len(groups) > 1:
            lines.append(f"{_words(event, len(jobs)).capitalize()} ({len(jobs)}):")
        room = form.longest - len(_MORE + _COMMAND) - sum(len(line) + 1 for line in lines)
        lines += _first([_line(alerts, form) for alerts in jobs.values()], most=max(left, _FEW), room=room)
        left -= len(jobs)
    return lines


def _first(lines: list[str], *, most: int, room: int) -> list[str]:
    """The first that fit, and how many more there are."""
    shown = lines[:most]
    while shown and sum(len(line) + 1 for line in shown) + _ROOM_FOR_REST > room:
        shown.pop()
    rest = len(lines) - len(shown)
    return [*shown, f"and {rest} more"] if rest else shown


def _line(alerts: Sequence[Facts], form: Form) -> str:
    last = alerts[-1]
    reason = one_line(reason_of(last), _LONGEST_REASON)
    again = f" ({len(alerts)} times)" if len(alerts) > 1 else ""
    return f"- {inline(title_of(last), form)}{again}" + (f": {inline(reason, form)}" if reason else "")
