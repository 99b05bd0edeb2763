"""All commands, and which module has which. A command line imports only what it names: it would wait for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

from pgcron_runner.cli.options import examples


class _Place(NamedTuple):
    """Where a command is: a function of a module, or a group that several modules register their commands in.

    `panel` is its part of the help.
    """

    name: str
    panel: str
    module: str = ""
    function: str = ""
    group: tuple[str, ...] = ()
    help: str = ""


_JOB: Final = ("job_add", "job_edit", "jobs", "job_history", "job_change")
# In the order in which the help shows them.
_PLACES: Final = (
    _Place("demo", "Begin", "demo", "demo"),
    _Place("dev", "Begin", "dev", "dev"),
    _Place("migrate", "Begin", "migrate", "migrate"),
    _Place("worker", "Begin", "worker", "worker"),
    _Place(
        "job",
        "Work",
        group=("job_add", "job_edit", "jobs", "job_history", "job_change"),
        help="Add, list and change jobs.",
    ),
    _Place("sync", "Work", "sync", "sync"),
    _Place("export", "Work", "export", "export"),
    _Place("runs", "Work", group=("runs",), help="Look at what ran, and stop what runs."),
    _Place("queue", "Work", group=("queues",), help="What waits in each queue; hold one back, or limit it."),
    _Place("calendar", "Work", group=("calendars",), help="Days on which jobs are skipped."),
    _Place("chain", "Work", group=("chains",), help="Jobs that run after other jobs."),
    _Place("backfill", "Work", "backfill", "backfill"),
    _Place("next", "Work", "schedules", "next_times"),
    _Place("step", "Work", "step", "step"),
    _Place("channel", "Alert", group=("channels",), help="Places where alerts go."),
    _Place("route", "Alert", group=("routes",), help="Which events of which jobs go to which channel."),
    _Place("incident", "Alert", group=("incidents",), help="What is wrong now, since when, and who was told."),
    _Place("watch", "Alert", "watch", "watch"),
    _Place("mute", "Alert", "mute", "mute"),
    _Place("unmute", "Alert", "mute", "unmute"),
    _Place("status", "Watch", "status", "status"),
    _Place("top", "Watch", "top", "top"),
    _Place("explain", "Watch", "explain", "explain"),
    _Place("workers", "Watch", "workers", "workers"),
    _Place("check", "Watch", "check", "check"),
    _Place("doctor", "Watch", "doctor", "doctor"),
)
_EXAMPLES: Final = {
    "migrate": examples("pgcron-runner migrate", "pgcron-runner migrate --dry-run > changes.sql"),
    "worker": examples(
        "pgcron-runner worker",
        "pgcron-runner worker --queues default,reports --kinds sql --slots 4",
        "pgcron-runner worker --once",
    ),
}


class InOrder(TyperGroup):
    """Commands and groups in the order of the places; typer would have all groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [place.name for place in _PLACES if place.name in self.commands]


def add_commands(app: typer.Typer, arguments: Sequence[str]) -> None:
    """Adds the command that the arguments name, or all where they name none: for the help, and for what was meant."""
    word = next((argument for argument in arguments if not argument.startswith("-")), None)
    for place in [place for place in _PLACES if place.name == word] or _PLACES:
        if place.group:
            group = typer.Typer(no_args_is_help=True, help=place.help)
            for name in place.group:
                _module(name).register(group)
            app.add_typer(group, name=place.name, rich_help_panel=place.panel)
        else:
            module = _module(place.module)
            epilog = getattr(module, f"{place.name.upper()}_EXAMPLES", None) or getattr(module, "EXAMPLES", None)
            epilog = epilog or _EXAMPLES.get(place.name)
            app.command(place.name, rich_help_panel=place.panel, epilog=epilog)(getattr(module, place.function))


def _module(name: str) -> Any:
    return import_module(f"pgcron_runner.cli.{name}")
