"""Server, stage and play, in the order in which they must be taken down whatever happens."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType, TracebackType
from typing import Any, Self

from pgcron_runner import embedded
from pgcron_runner.cli.demo.acts import Play, Told
from pgcron_runner.cli.demo.report import judge, print_report
from pgcron_runner.cli.demo.screen import Screen
from pgcron_runner.cli.demo.stage import open_stage
from pgcron_runner.promises import Verdict, check_machine

_INTERRUPTED = 130


def run_show(seconds: float) -> int:
    """All of the demo; returns its exit code."""
    screen = Screen()
    try:
        with _Interrupts() as interrupts:
            told, verdicts = _perform(screen, interrupts, seconds)
            print_report(screen, told, verdicts)
    except KeyboardInterrupt:
        screen.console.print("Stopped. Its processes have ended and its files are gone.")
        return _INTERRUPTED
    return 0 if all(verdict.kept for verdict in verdicts) else 1


def _perform(screen: Screen, interrupts: _Interrupts, seconds: float) -> tuple[Told, list[Verdict]]:
    """The play on its stage; the last verdict is made when everything has been taken down."""
    screen.act("Act 1: a Postgres of its own")
    with ExitStack() as built:
        server = built.enter_context(embedded.start_temporary())
        built.callback(interrupts.hold)
        screen.say(f"PostgreSQL {server.version} runs in {server.data.parent}, on a Unix socket only")
        stage = built.enter_context(open_stage())
        built.callback(interrupts.hold)
        with screen:
            told = asyncio.run(Play(server.dsn(), stage, screen, seconds=seconds).perform())
        verdicts = judge(told)
    left = stage.processes() | ({server.pid: "postgres"} if server.pid else {})
    folders = [str(path) for path in (stage.folder, server.data.parent, server.socket_dir) if path.exists()]
    return told, [*verdicts, check_machine(list(left.values()), folders)]


class _Interrupts:
    """Ctrl-C, TERM and HUP raise KeyboardInterrupt; while things are taken down it waits until that is done."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._noted = False

    def hold(self) -> None:
        """From now on an interrupt is only noted."""
        signal.signal(signal.SIGINT, self._note)

    def __enter__(self) -> Self:
        self._handle(signal.SIGINT, signal.default_int_handler)
        self._handle(signal.SIGTERM, _as_interrupt)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            self._handle(signal.SIGHUP, _as_interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._noted and error is None:
            raise KeyboardInterrupt

    def _handle(self, number: int, handler: Callable[[int, FrameType | None], object]) -> None:
        self._before[number] = signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = True


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)
