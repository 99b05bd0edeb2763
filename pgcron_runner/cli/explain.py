"""`pgcron-runner explain JOB TIME`: why did it, or did it not, run."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from pgcron_runner.cli.jobs import find_job
from pgcron_runner.cli.options import AsJson, Dsn, examples, job_argument, parse_instant
from pgcron_runner.cli.output import note, print_json, print_text, say, zone_of
from pgcron_runner.cli.session import with_database
from pgcron_runner.explain import MOST, ExplainedJob, Explanation, Moment, moments_shown
from pgcron_runner.explain import explain as explain_moment
from pgcron_runner.model import DstGap, DstRepeat
from pgcron_runner.store import catalog, inquiry
from pgcron_runner.store.catalog import Job

if TYPE_CHECKING:
    from pgcron_runner.database import Connection

EXAMPLES = examples(
    "pgcron-runner explain nightly-report 2027-01-31T03:00",
    "pgcron-runner explain nightly-report 2027-01-31T02:00Z",
    "pgcron-runner explain every-second 2027-01-31T03:00:07 --json",
)

_ROWS = 500
_LOCAL = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?", re.ASCII)
_TO_THE_SECOND = re.compile(r":\d\d:\d\d")


def explain(
    name: Annotated[str, job_argument()],
    time: Annotated[
        str,
        typer.Argument(
            metavar="TIME",
            help="When; in the job's zone, if it has no offset. Without seconds the whole minute.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
    dsn: Dsn = None,
) -> None:
    """Tell in plain words why a job ran at a time, ran late, or did not run."""
    parse_instant(time, field="time", zone=zone_of("UTC"))  # what is no time at all needs no database

    async def read(connection: Connection) -> list[Explanation]:
        job, now = await find_job(connection, name), await catalog.read_clock(connection)
        around = await inquiry.read_circumstances(connection, job.id)
        told: list[Explanation] = []
        for moment in _moments(time, zone_of(job.timezone)):
            runs = await inquiry.list_occurrence_runs(connection, job.id, moment.start, moment.end, limit=_ROWS)
            told += explain_moment(_facts(job), moment, runs, now, around)
        return told

    told = with_database(dsn, read)
    if as_json:
        print_json(told)
        return
    for n, explanation in enumerate(told):
        if n:
            say()
        for sentence in explanation.sentences:
            print_text(sentence)
    if len(told) >= MOST:
        note(f"These are the first {MOST} of that minute. With seconds the time says which one is meant.")


def _moments(text: str, zone: ZoneInfo) -> list[Moment]:
    """What a text asks for: a second, or a whole minute; a local time may be none or two of the clock's."""
    length = timedelta(seconds=1) if _TO_THE_SECOND.search(text) else timedelta(minutes=1)
    found = _LOCAL.fullmatch(text.strip())
    if found is None:
        start = parse_instant(text, field="time", zone=zone).replace(microsecond=0)
        return [Moment(start, start + length)]
    return moments_shown(datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}"), length, zone)


def _facts(job: Job) -> ExplainedJob:
    given = {field.name: getattr(job, field.name) for field in fields(ExplainedJob)}
    return ExplainedJob(**given | {"dst_gap": DstGap(job.dst_gap), "dst_repeat": DstRepeat(job.dst_repeat)})
