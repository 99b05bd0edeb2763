"""Server, stage and play, in the order in which they must be taken down whatever happens."""

from __future__ import annotations

from contextlib import ExitStack

from pgcron_runner import embedded
from pgcron_runner.cli.demo.acts import Play, Told
from pgcron_runner.cli.demo.report import judge, print_report
from pgcron_runner.cli.demo.screen import Screen
from pgcron_runner.cli.demo.stage import open_stage
from pgcron_runner.cli.interrupts import Interrupts
from pgcron_runner.promises import Verdict, check_machine

_INTERRUPTED = 130


def run_show(seconds: float) -> int:
    """All of the demo; returns its exit code."""
    screen = Screen()
    try:
        with Interrupts() as interrupts:
            told, verdicts = _perform(screen, interrupts, seconds)
            print_report(screen, told, verdicts)
    except KeyboardInterrupt:
        screen.console.print("Stopped. Its processes have ended and its files are gone.")
        return _INTERRUPTED
    return 0 if all(verdict.kept for verdict in verdicts) else 1


def _perform(screen: Screen, interrupts: Interrupts, seconds: float) -> tuple[Told, list[Verdict]]:
    """The play on its stage; the last verdict is made when everything has been taken down."""
    screen.act("Act 1: a Postgres of its own")
    with ExitStack() as built:
        server = built.enter_context(embedded.start_temporary())
        built.callback(interrupts.hold)
        screen.say(f"PostgreSQL {server.version} runs in {server.data.parent}, on a Unix socket only")
        stage = built.enter_context(open_stage())
        built.callback(interrupts.hold)
        with screen:
            told = interrupts.run(Play(server.dsn(), stage, screen, seconds=seconds).perform())
        verdicts = judge(told)
    left = stage.processes() | ({server.pid: "postgres"} if server.pid else {})
    folders = [str(path) for path in (stage.folder, server.data.parent, server.socket_dir) if path.exists()]
    return told, [*verdicts, check_machine(list(left.values()), folders)]
