"""The story of a breach: the run's row, its attempts, its marks, the faults around them, and what its worker said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from tests.faults.checker import Breach, History, Mark, Run
from tests.faults.programme.collect import Event
from tests.faults.programme.scene import Done

_AROUND = 8.0
_MOST_LINES = 25


@dataclass
class Archive:
    """All that a story is told from; looked up by run."""

    history: History
    done: Sequence[Done]
    events: Sequence[Event]

    def __post_init__(self) -> None:
        self._runs = {run.id: run for run in self.history.runs}
        self._marks: dict[int, list[Mark]] = {}
        for mark in self.history.marks:
            self._marks.setdefault(mark.run_id, []).append(mark)
        self._hosts = {event.fields["worker"]: event.host for event in self.events if event.name == "worker_started"}

    def tell(self, breach: Breach) -> str:
        return "\n".join([f"### {breach.rule}: {breach.text}", *self._lines(breach)])

    def _lines(self, breach: Breach) -> Iterator[str]:
        moments: list[float] = []
        for run_id in breach.run_ids[:4]:
            run = self._runs.get(run_id)
            marks = self._marks.get(run_id, [])
            moments += [marks[0].at, marks[-1].at] if marks else []
            if run is None:
                yield f"  run {run_id}: no row"
            else:
                moments += [self._boottime(moment) for moment in (run.started_at, run.finished_at) if moment]
                yield f"  {_row(run)} on {self._hosts.get(run.worker_id or '', run.worker_id)}"
                yield from (f"    attempt: {_row(other)}" for other in self._others(run))
            yield from (f"    mark: {mark.word} at {mark.at:.2f}" for mark in marks if mark.word != "alive")
            if marks and marks[-1].word == "alive":
                yield f"    mark: last seen alive at {marks[-1].at:.2f}"
        if not moments and (named := self._named(breach)) is not None:
            moments = [named]
        if moments:
            yield from self._faults(min(moments), max(moments))
            yield from self._said(breach, min(moments), max(moments))

    def _others(self, run: Run) -> list[Run]:
        return [
            other
            for other in self.history.runs
            if (other.job, other.scheduled_for) == (run.job, run.scheduled_for) and other.id != run.id
        ][:5]

    def _named(self, breach: Breach) -> float | None:
        """The instant that an unaccounted occurrence's text ends with."""
        try:
            return self._boottime(datetime.fromisoformat(breach.text[-25:]))
        except ValueError:
            return None

    def _boottime(self, moment: datetime) -> float:
        """Roughly: by what the clock shows now."""
        return (moment - self.history.clock.steps[-1][1]).total_seconds()

    def _faults(self, begin: float, end: float) -> Iterator[str]:
        around = [done for done in self.done if done.began_at <= end + 1 and done.ended_at >= begin - _AROUND]
        yield from (f"    fault: {done.began_at:.2f} to {done.ended_at:.2f} {done}" for done in around[:_MOST_LINES])

    def _said(self, breach: Breach, begin: float, end: float) -> Iterator[str]:
        hosts = {
            self._hosts.get(self._runs[run_id].worker_id or "") for run_id in breach.run_ids if run_id in self._runs
        }
        lines = [event for event in self.events if self._is_about(event, breach, hosts, begin, end)]
        yield from (f"    log: {event}"[:400] for event in lines[:_MOST_LINES])

    def _is_about(self, event: Event, breach: Breach, hosts: set[str | None], begin: float, end: float) -> bool:
        if event.fields.get("run") in breach.run_ids:
            return True
        at = event.fields.get("boottime")
        if at is None and (stamp := event.fields.get("timestamp")):
            # Of hosts whose clocks have been stepped this is the wrong place, not the wrong story.
            at = self._boottime(datetime.fromisoformat(stamp))
        return event.host in hosts and at is not None and begin - 4 <= at <= end + 2


def _row(run: Run) -> str:
    times = ", ".join(
        f"{name} {moment:%H:%M:%S.%f}"
        for name, moment in (("run_at", run.run_at), ("started", run.started_at), ("finished", run.finished_at))
        if moment is not None
    )
    return f"{run} {run.trigger}: {times}{f', {run.reason}' if run.reason else ''}"
