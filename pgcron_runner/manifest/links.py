"""`after`: which jobs start this one, as a file says it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pgcron_runner.durations import parse_duration
from pgcron_runner.errors import InvalidInput
from pgcron_runner.store.chains import Chain

_ENDS = ("succeeded", "failed", "finished")
_KEYS = ("job", "on", "delay")


def read_links(name: str, value: Any) -> tuple[Chain, ...]:
    """The chains that start the job `name`. Raises InvalidInput."""
    links = [value] if isinstance(value, str | dict) else value
    if not isinstance(links, list | tuple):
        raise InvalidInput("after", value, "is not a list of jobs")
    chains = [_read(name, link) for link in links]
    for chain in chains:
        if sum(chain.upstream == other.upstream for other in chains) > 1:
            raise InvalidInput("after", chain.upstream, "is named twice")
        if chain.upstream == name:
            raise InvalidInput(
                "after", name, "is the job itself; to go on after itself it says @every 10m after finish"
            )
    return tuple(sorted(chains, key=lambda chain: chain.upstream))


def find_circle(chains: Iterable[Chain]) -> list[str] | None:
    """Jobs that would start each other for ever, in their order; None: there are none."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for chain in chains:
        sorter.add(chain.downstream, chain.upstream)
    try:
        sorter.prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return None


def _read(name: str, link: Any) -> Chain:
    if isinstance(link, str):
        link = {"job": link}
    if not isinstance(link, Mapping) or not isinstance(link.get("job"), str):
        raise InvalidInput("after", link, "does not name a job")
    if unknown := [key for key in link if key not in _KEYS]:
        raise InvalidInput("after", unknown[0], f"is none of {', '.join(_KEYS)}")
    end, delay = link.get("on", "succeeded"), link.get("delay", timedelta(0))
    if end not in _ENDS:
        raise InvalidInput("after", end, f"is no end of a job: {', '.join(_ENDS)}")
    if not isinstance(delay, timedelta):
        delay = parse_duration(str(delay), field="after", minimum=timedelta(0))
    return Chain(str(link["job"]), name, str(end), delay)
