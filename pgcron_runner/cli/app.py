"""The console script: puts the commands together and turns errors into sentences and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from pgcron_runner import __version__
from pgcron_runner.cli import step
from pgcron_runner.cli.commands import InOrder, add_commands
from pgcron_runner.cli.completion import words_of_line
from pgcron_runner.cli.options import Unchanged, WrongUse, examples
from pgcron_runner.cli.output import clean
from pgcron_runner.errors import InvalidInput, PgcronError

DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130

_PROGRAM = "pgcron-runner"
# A user's own text may be in the message, and may be a whole script.
_LONGEST_MESSAGE = 700
# typer brings its own copy of click, older ones the package; either way this is the root of its complaints.
_UsageError: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main() -> NoReturn:
    """Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code. Errors are one or two lines on standard error."""
    _survive_any_encoding()
    try:
        for argument in arguments:
            argument.encode()
        if list(arguments[:1]) == ["step"]:
            return step.main(arguments[1:])
        app = build_app(arguments or words_of_line(), rich_help=sys.stdout.isatty())
        code = app(list(arguments), prog_name=_PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except BrokenPipeError:
        # Whoever read the output has had enough. What is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except UnicodeEncodeError:
        return _complain("An argument is not valid UTF-8.", WRONG_USE)
    except typer.Abort:
        return _complain("Nothing was done.", FAILED)
    except _UsageError as error:
        return _complain_of_usage(error)
    except (InvalidInput, WrongUse) as error:
        return _complain(str(error), WRONG_USE)
    except Unchanged as error:
        return _complain(str(error), FAILED)
    except PgcronError as error:
        return _complain(str(error), FAILED)


def build_app(arguments: Sequence[str] = (), *, rich_help: bool = True) -> typer.Typer:
    """The command that the arguments name, or all of them.

    Help is framed and coloured with `rich_help`, else plain text that a pipe can use.
    """
    app = typer.Typer(
        cls=InOrder,
        no_args_is_help=True,
        rich_markup_mode="rich" if rich_help else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=_EPILOG,
    )
    app.callback()(_root)
    add_commands(app, arguments)
    return app


def _version(on: bool) -> None:
    if on:
        typer.echo(f"{_PROGRAM} {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Cron for a team that already has Postgres: several workers, no doubles, nothing lost."""


_EPILOG = examples(
    "pgcron-runner migrate",
    "pgcron-runner job add clean-up --sql 'delete from sessions where expired' \\",
    "    --schedule '0 3 * * *' --timezone Europe/Berlin",
    "pgcron-runner worker",
)


def _complain_of_usage(error: Exception) -> int:
    message = str(getattr(error, "message", error))
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(message, err=True)
        return WRONG_USE
    message = error.format_message() if hasattr(error, "format_message") else message
    context = getattr(error, "ctx", None)
    see = f" See: {context.command_path} --help" if context is not None else ""
    return _complain(f"{message if message.endswith(('.', '?')) else f'{message}.'}{see}", WRONG_USE)


def _complain(message: str, code: int) -> int:
    message = clean(message)
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[: _LONGEST_MESSAGE // 2]} … {message[-_LONGEST_MESSAGE // 2 :]}"
    typer.echo(f"Error: {message}", err=True)
    return code


def _survive_any_encoding() -> None:
    """A terminal that cannot show a letter gets it spelt out, rather than nothing at all."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
