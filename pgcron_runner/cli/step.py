"""`pgcron-runner step`: what the command of a job says of its run, from a shell.

Called in loops, so it must not import what the other commands need (typer alone would take 100 ms).
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from pgcron_runner.errors import PgcronError
from pgcron_runner.running import CONTEXT, NotInRun, NotKept, RunFiles, run

TYPE_CHECKING = False  # typing's own takes 5 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

_DONE, _FAILED, _WRONG_USE = 0, 1, 2
_NOTHING: Any = object()
_EXAMPLES = """\
In a job's command:

  cursor=$(pgcron-runner step get cursor --default 0)
  while copy_some_rows --from "$cursor"; do
    cursor=$((cursor + 1000))
    pgcron-runner step save cursor=$cursor
    pgcron-runner step progress $((cursor / 10000)) "copied $cursor rows"
  done
  pgcron-runner step result "{\\"rows\\": $cursor}"
  pgcron-runner step next --after 10s --job report --args '{"table": "users"}'

The same without this program, as any language can do it:

  jq .cursor "$PGCRON_STATE"                (no file: nothing was saved)
  echo '{"cursor": 1000}' > "$PGCRON_STATE.new"
  mv "$PGCRON_STATE.new" "$PGCRON_STATE"    (never seen half written)
  echo '40 copied' >> "$PGCRON_PROGRESS"
  echo '{"rows": 1000}' > "$PGCRON_RESULT"
  echo '{"job": "report", "after": "10s"}' >> "$PGCRON_NEXT"
"""


def step() -> None:
    """In a job's command: say how far it is, save where it stands, ask for the next run."""
    raise AssertionError("dispatched before typer is asked")


def main(arguments: Sequence[str]) -> int:
    """Runs one `step ...` for the run that this process belongs to; returns the exit code."""
    try:
        given = _parser().parse_args(list(arguments))
        token = CONTEXT.set(RunFiles(os.environ))
        try:
            return int(given.act(given) or _DONE)
        finally:
            CONTEXT.reset(token)
    except SystemExit as end:  # argparse has said why
        return int(end.code or _DONE)
    except NotInRun:
        return _complain("There is no run here: `step` is for the command of a job, where PGCRON_RUN_ID is set.")
    except PgcronError as error:
        return _complain(str(error))
    except OSError as error:
        return _complain(f"{error.filename or 'output'}: {error.strerror}", _FAILED)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.exit(_complain(f"{message[:1].upper()}{message[1:]}. See: {self.prog} --help"))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pgcron-runner step",
        description="What a job's command says of its own run. Progress and state are in the run's\n"
        "row while it goes on; the next runs begin once it has succeeded.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    steps = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_progress(steps)
    _add_save(steps)
    _add_get(steps, "get", "state", "print what was saved: a value of it, or all of it")
    _add_get(steps, "arg", "args", "print one of the job's args, or all of them")
    _add_next(steps)
    _add_result(steps)
    return parser


def _add_progress(steps: Any) -> None:
    command = _add(steps, "progress", _progress, "how far it is: 0 to 100, and a few words")
    command.add_argument("percent", metavar="PERCENT")
    command.add_argument("words", metavar="TEXT", nargs="*")


def _progress(given: argparse.Namespace) -> None:
    try:
        percent = float(given.percent.removesuffix("%"))
    except ValueError:
        raise NotKept(f"progress: {given.percent!r} is not a number from 0 to 100. For example: 40") from None
    run.progress(percent, " ".join(given.words))


def _add_save(steps: Any) -> None:
    text = "keep values for the next attempt or slice, beside those that are there"
    command = _add(steps, "save", _save, text)
    command.add_argument("values", metavar="NAME=VALUE", nargs="*", help="JSON, or else a text: cursor=123 table=users")
    command.add_argument("--replace", action="store_true", help="forget all others")


def _save(given: argparse.Namespace) -> None:
    values = dict(_assignment(text) for text in given.values)
    if given.replace:
        run.save(values)
    elif values:
        run.save(**values)
    else:
        raise NotKept("save: nothing is named. For example: pgcron-runner step save cursor=123")


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise NotKept(f"save: {text!r} is not NAME=VALUE. For example: cursor=123")
    return name, _json_or_text(value)


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return value


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _add_get(steps: Any, name: str, source: str, text: str) -> None:
    command = _add(steps, name, _get, text)
    command.add_argument("name", metavar="NAME", nargs="?")
    command.add_argument("--default", metavar="TEXT", default=_NOTHING, help="print this where there is none")
    command.set_defaults(source=source)


def _get(given: argparse.Namespace) -> int:
    value = getattr(run, given.source)
    if given.name is not None:
        value = value.get(given.name, _NOTHING) if isinstance(value, dict) else _NOTHING
    if value is _NOTHING:
        value = given.default
    if value is _NOTHING:
        return _complain(f"{given.source}: there is no {given.name!r}, and no --default.", _FAILED)
    print(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))  # noqa: T201 # its purpose
    return _DONE


def _add_next(steps: Any) -> None:
    command = _add(steps, "next", _next, "start another run once this one has succeeded")
    command.add_argument(
        "--after", metavar="DURATION", default="0s", help="how long after its end, such as 10s; else at once"
    )
    command.add_argument("--job", metavar="NAME", help="of this job; else of its own, which then finds the saved state")
    command.add_argument("--args", metavar="JSON", help="with these args; else the job's")


def _next(given: argparse.Namespace) -> None:
    args = None if given.args is None else _json(given.args, "args", """'{"day": "2027-01-31"}'""")
    if args is not None and not isinstance(args, dict):
        raise NotKept(f"""args: {given.args!r} is not a JSON object. For example: '{{"day": "2027-01-31"}}'""")
    run.run_after(given.after, job=given.job, args=args)


def _add_result(steps: Any) -> None:
    command = _add(steps, "result", _result, "what came of it")
    command.add_argument("value", metavar="JSON")


def _result(given: argparse.Namespace) -> None:
    run.result(_json(given.value, "result", """'{"rows": 12}'"""))


def _json(text: str, field: str, example: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise NotKept(f"{field}: {text[:100]!r} is not JSON. For example: {example}") from None


def _add(steps: Any, name: str, act: Callable[[argparse.Namespace], int | None], text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = steps.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.")
    command.set_defaults(act=act)
    return command


def _complain(message: str, code: int = _WRONG_USE) -> int:
    sys.stderr.write(f"Error: {message}\n")
    return code
