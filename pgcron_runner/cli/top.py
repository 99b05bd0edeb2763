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
from pgcron_runner.cli.output import clean, print_json, print_table, print_text, say, span, utc
from pgcron_runner.cli.session import with_database
from pgcron_runner.cli.top_screen import draw, sections, summary
from pgcron_runner.errors import PgcronError
from pgcron_runner.store import catalog_top
from pgcron_runner.store.catalog_top import Snapshot

if TYPE_CHECKING:
    from pgcron_runner.database import Connection, Database

EXAMPLES = examples("pgcron-runner top", "pgcron-runner top --interval 5s", "pgcron-runner top --once --json")

# More than a screen has rows; in a pipe there is no screen.
_ON_SCREEN, _IN_PIPE = 100, 1000
# A session that says nothing for so long is given up.
_PATIENCE = 5.0
_SHORTEST = timedelta(milliseconds=200)
_A_SECOND = timedelta(seconds=1)
_INTERVAL = option(
    "--interval", "DURATION", "How often to look; else each second.", parser=duration("interval", minimum=_SHORTEST)
)


def top(
    interval: Annotated[
        timedelta,
        option("--interval", "DURATION", "How often to look.", parser=duration("interval", minimum=_SHORTEST)),
    ] = _A_SECOND,
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
    watch = _Watch(database)
    await watch.look()
    if watch.snapshot is None:
        raise watch.refusal
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


async def _draw_for_ever(watch: _Watch, show: Callable[[_Watch], None], interval: float, wake: asyncio.Event) -> None:
    while True:
        show(watch)
        with suppress(TimeoutError):
            async with asyncio.timeout(interval):
                await wake.wait()
                wake.clear()
                show(watch)  # the window has another size
        await watch.look()


class _Watch:
    """The last snapshot, and what is in the way of a newer one. Its session comes back."""

    def __init__(self, database: Database) -> None:
        self.snapshot: Snapshot | None = None
        self.place = ""
        self.trouble = ""
        self.refusal: PgcronError = PgcronError()
        self._database = database
        self._connection: Connection | None = None
        self._seen = 0.0

    async def look(self) -> None:
        """Reads a new snapshot, or says in `trouble` why there is none."""
        from pgcron_runner.database import DatabaseError, explain

        try:
            async with asyncio.timeout(_PATIENCE):
                self.snapshot = await self._read()
        except TimeoutError:
            await self._lose(PgcronError("Postgres does not answer."))
        except DatabaseError as error:
            await self._lose(explain(error))
        except PgcronError as error:
            await self._lose(error)
        else:
            self.trouble, self._seen = "", asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Ends the session."""
        if self._connection is not None:
            with suppress(Exception):
                await self._connection.close()
            self._connection = None

    async def _read(self) -> Snapshot:
        from pgcron_runner.database import Purpose
        from pgcron_runner.migrate import check_schema

        if self._connection is None:
            # A record session has limits of time, and no plan that an empty table has misled.
            self._connection = await self._database.connect(Purpose.RECORD)
            await check_schema(self._connection)
            self.place = _place(self._connection)
        return await catalog_top.read_snapshot(self._connection, limit=_ON_SCREEN)

    async def _lose(self, refusal: PgcronError) -> None:
        await self.close()
        self.refusal = refusal
        age = timedelta(seconds=round(asyncio.get_running_loop().time() - self._seen))
        self.trouble = f"No connection, trying again; this is {span(max(age, _A_SECOND))} old. {clean(str(refusal))}"


def _place(connection: Connection) -> str:
    """`app on db.example.org`."""
    host = connection.info.host
    return f"{connection.info.dbname} on {host if host and not host.startswith('/') else 'this host'}"


@contextmanager
def _screen() -> Iterator[Callable[[_Watch], None]]:
    """The whole terminal, until the block ends."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(markup=False, emoji=False, highlight=False)
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:

        def show(watch: _Watch) -> None:
            assert watch.snapshot is not None
            width, height = console.size
            lines = draw(watch.snapshot, place=watch.place, trouble=watch.trouble, width=width, height=height)
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
