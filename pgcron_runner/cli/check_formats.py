"""How the findings of `check` are printed: for people, for programs, for code hosts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from pgcron_runner import __version__
from pgcron_runner.check import RULES, Finding, Review, Rule
from pgcron_runner.cli.output import clean, plural, print_json, print_text, say

Places = Callable[[str], tuple[str, int] | None]
"""The file and line of a job; None: it is in no file."""

_BARS: Final = " ▁▂▃▄▅▆▇█"
_ENOUGH_FOR_A_PICTURE: Final = 10
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def print_findings(review: Review, places: Places) -> None:
    """Rule by rule, with what to do; then how starts lie in the hour, and a sum."""
    findings = sorted(review.findings, key=lambda finding: finding.code)
    for code, found in groupby(findings, key=lambda finding: finding.code):
        rule = RULES[code]
        say(f"{code} {rule.name}")
        for finding in found:
            _tell(f"  {_where(finding, places)}{clean(finding.message)}")
        _tell(f"  Fix: {rule.fix}")
        say()
    if review.jobs >= _ENOUGH_FOR_A_PICTURE and review.by_minute:
        print_histogram(review.by_minute)
    left_out = f" {plural(review.ignored, 'more is', 'more are')} left out by check_ignore." if review.ignored else ""
    if findings:
        say(f"{plural(len(findings), 'finding')} in {plural(review.jobs, 'job')}.{left_out}")
        say(f"Why: pgcron-runner check --explain {findings[0].code}")
    else:
        say(f"{plural(review.jobs, 'job')}: nothing found.{left_out}")


def _tell(text: str) -> None:
    """Broken between words on a terminal; in a pipe there may be very many."""
    if sys.stdout.isatty():
        print_text(text)
    else:
        say(text)


def print_histogram(by_minute: Mapping[int, int]) -> None:
    """A bar for each minute of the hour."""
    most = max(by_minute.values())
    # What starts at all is seen.
    heights = [-(-by_minute.get(minute, 0) * (len(_BARS) - 1) // most) for minute in range(60)]
    at = max(by_minute, key=lambda minute: (by_minute[minute], -minute))
    say(f"Starts of the next week by minute of the hour; {most:,} at minute {at}:")
    say("  " + "".join(_BARS[height] for height in heights).rstrip())
    say("  " + "".join(f"{minute:<10}" for minute in range(0, 60, 10)).rstrip())
    say()


def print_as_json(review: Review, places: Places) -> None:
    """Everything, for a program."""
    print_json(
        {
            "jobs": review.jobs,
            "ignored": review.ignored,
            "findings": [
                {
                    "code": finding.code,
                    "rule": finding.rule,
                    "job": finding.job or None,
                    "message": finding.message,
                    "fix": finding.fix,
                    **dict(zip(("file", "line"), places(finding.job) or (None, None), strict=True)),
                }
                for finding in review.findings
            ],
            "starts_by_minute": {str(minute): count for minute, count in review.by_minute.items()},
        }
    )


def print_for_github(review: Review, places: Places) -> None:
    """Workflow commands: they become remarks at the lines of a pull request."""
    for finding in review.findings:
        place = places(finding.job)
        at = f"file={_property(place[0])},line={place[1]}," if place else ""
        text = f"{finding.job or 'all jobs'}: {finding.message}. Fix: {finding.fix}"
        say(f"::warning {at}title={_property(f'{finding.code} {finding.rule}')}::{_data(text)}")


def print_as_sarif(review: Review, places: Places) -> None:
    """SARIF 2.1.0, which code hosts and editors read."""
    used = sorted({finding.code for finding in review.findings})
    driver = {
        "name": "pgcron-runner check",
        "version": __version__,
        "rules": [_described(RULES[code]) for code in used],
    }
    results = [_result(finding, places(finding.job)) for finding in review.findings]
    print_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]})


def print_page(rule: Rule) -> None:
    """What a rule means."""
    say(f"{rule.code} {rule.name}")
    say()
    for paragraph in rule.page.split("\n\n"):
        print_text(" ".join(paragraph.split()))
        say()
    say(f'Left out for one job, with a reason: check_ignore = {{ {rule.code} = "why" }}')


def _where(finding: Finding, places: Places) -> str:
    place = places(finding.job)
    at = f"{place[0]}:{place[1]} " if place else ""
    return clean(f"{at}{finding.job}: ") if finding.job else ""


def _described(rule: Rule) -> dict[str, Any]:
    texts = {"shortDescription": rule.summary, "fullDescription": rule.page, "help": rule.fix}
    return {"id": rule.code, "name": rule.name} | {key: {"text": text} for key, text in texts.items()}


def _result(finding: Finding, place: tuple[str, int] | None) -> dict[str, Any]:
    location: dict[str, Any] = {"logicalLocations": [{"name": finding.job or "all jobs"}]}
    if place:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": place[0]},
            "region": {"startLine": place[1]},
        }
    message = {"text": f"{finding.job or 'all jobs'}: {finding.message}. {finding.fix}"}
    return {"ruleId": finding.code, "level": "warning", "message": message, "locations": [location]}


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def print_list(rules: Iterable[Rule]) -> None:
    """All rules, a line each."""
    from pgcron_runner.cli.output import Column, print_table

    columns = [Column("CODE"), Column("RULE"), Column("WHAT", flexible=True)]
    print_table(columns, [[rule.code, rule.name, " ".join(rule.summary.split())] for rule in rules])
