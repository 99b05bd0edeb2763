"""`pgcron-runner top`: what goes on, live, on one screen. It changes nothing."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgcron_runner.cli.options import AsJson, Dsn, duration, examples, option
from pgcron_runner.cli.output import print_json, print_table, print_text, say, utc
from pgcron_runner.cli.session import with_database
from pgcron_runner.cli.top_screen import draw, sections, summary
from pgcron_runner.cli.top_watch import Watch
from pgcron_runner.store import catalog_top
from pgcron_runner.store.catalog_top import Snapshot

if TYPE_CHECKING:
    from pgcron_runner.database import Connection, Database

EXAMPLES = examples("pgcron-runner top", "pgcron-runner top --interval 5s", "pgcron-runner top --once --json")

# In a pipe there is no screen that it must fit.
_IN_PIPE = 1000
_SHORTEST = timedelta(milliseconds=200)
_A_SECOND = timedelta(seconds=1)
_INTERVAL = option(
    "--interval", "DURATION", "How often to look; else each second.", parser=duration("interval", minimum=_SHORTEST)
)


def top(
    interval: Annotated[timedelta, _INTERVAL] = _A_SECOND,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end, as in a pipe.")] = False,
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Watch what runs, fails, is due and waits, and who works. q or Ctrl-C ends it."""
    if once or as_json or not _is_screen():
        _print_once(with_database(dsn, _read_all), as_json=as_json)
        return
    from pgcron_runner.database import Database, resolve_dsn

    asyncio.run(_until_ended(Database(resolve_dsn(dsn)), interval.total_seconds()))


async def _read_all(connection: Connection) -> Snapshot:
    return await catalog_top.read_snapshot(connection, limit=_IN_PIPE)


def _is_screen() -> bool:
    from rich.console import Console

    return sys.stdout.isatty() and not Console().is_dumb_terminal


def _print_once(snapshot: Snapshot, *, as_json: bool) -> None:
    if as_json:
        print_json(snapshot)
        return
    say(f"It is {utc(snapshot.pulse.now)}.")
    cell = summary(snapshot)
    print_text(cell if isinstance(cell, str) else cell.text)
    for section in sections(snapshot):
        say()
        print_table(section.columns, section.rows or [["none", *[""] * (len(section.columns) - 1)]])


async def _until_ended(database: Database, interval: float) -> None:
    """Draws until somebody ends it. Raises where already the first look is refused."""
    stop, wake = asyncio.Event(), asyncio.Event()
    watch = Watch(database)
    await watch.begin()
    with _screen() as show, _keys(stop, wake):
        ended = asyncio.create_task(stop.wait())
        drawing = asyncio.create_task(_draw_for_ever(watch, show, interval, wake))
        await asyncio.wait({ended, drawing}, return_when=asyncio.FIRST_COMPLETED)
        for task in (ended, drawing):
            task.cancel()
        await asyncio.wait({ended, drawing})
    await watch.close()
    if not drawing.cancelled():
        drawing.result()


async def _draw_for_ever(watch: Watch, show: Callable[[Watch], None], interval: float, wake: asyncio.Event) -> None:
    while True:
        show(watch)
        with suppress(TimeoutError):
            # Where something is wrong, the screen tells how long it has been.
            async with asyncio.timeout(min(interval, 1.0) if watch.trouble() else interval):
                await wake.wait()
        if wake.is_set():
            wake.clear()  # the window has another size
        else:
            await watch.look(min(interval, 1.0))


@contextmanager
def _screen() -> Iterator[Callable[[Watch], None]]:
    """The whole terminal, until the block ends."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(markup=False, emoji=False, highlight=False)
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:

        def show(watch: Watch) -> None:
            assert watch.snapshot is not None
            width, height = console.size
            lines = draw(watch.snapshot, place=watch.place, trouble=watch.trouble(), width=width, height=height)
            live.update(Text("\n").join(lines), refresh=True)

        yield show


@contextmanager
def _keys(stop: asyncio.Event, wake: asyncio.Event) -> Iterator[None]:
    """q and whatever ends programs sets `stop`, another size of the window `wake`, until the block ends."""
    import termios
    import tty

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGWINCH, wake.set)
    if not sys.stdin.isatty():
        yield
        return
    keyboard = sys.stdin.fileno()
    before: Any = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard, termios.TCSANOW)  # what was typed ahead counts
    loop.add_reader(keyboard, _press, keyboard, stop)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _press(keyboard: int, stop: asyncio.Event) -> None:
    import os

    # Nothing at all: the terminal has gone.
    if os.read(keyboard, 1024).lower()[:1] in (b"q", b"\x03", b""):
        stop.set()
