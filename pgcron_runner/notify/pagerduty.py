"""PagerDuty, Events API v2: one incident there for one here, opened, acknowledged and resolved under the same key.

Apprise's own plugin opens a new incident with every message. Runs in a sender process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pgcron_runner.model import Delivery
from pgcron_runner.notify.events import Severity, event_of, name_of
from pgcron_runner.notify.markup import PLAIN
from pgcron_runner.notify.messages import Facts, commands_of, job_of
from pgcron_runner.notify.posting import Poster, poster
from pgcron_runner.notify.writing import Writer

_ENDPOINTS = {"us": "https://events.pagerduty.com/v2/enqueue", "eu": "https://events.eu.pagerduty.com/v2/enqueue"}
_LONGEST_SUMMARY = 1024
_ACTIONS = {"recovered": "resolve", "acknowledged": "acknowledge"}
_SEVERITIES = {Severity.ERROR: "error", Severity.WARNING: "warning"}
_DETAILS = (
    "problem", "error", "reason", "exit_code", "output", "attempt", "max_attempts", "failures", "since",
    "scheduled_for", "started_at", "finished_at", "next_run_at", "missed_count", "missed_until", "paused_reason",
    "kind", "tags", "owner", "run", "status", "worker", "notes",
)  # fmt: skip
# The share of the deadline within which events are begun; the rest is for the last answer.
_BEGIN_WITHIN = 0.6
_MOST_REFUSED = 3


def send_to_pagerduty(
    url: str, alerts: Sequence[Facts], writer: Writer, deadline: float, *, clock: Callable[[], float] = time.monotonic
) -> Delivery:
    """An event for each alert: a digest would open one incident for many. What is sent twice changes nothing there.

    One that is refused keeps no later one back; but taken, for the record, are those before the first that was not.
    """
    endpoint, key = endpoint_of(url), urlsplit(url).netloc
    until = clock() + deadline * _BEGIN_WITHIN
    taken, refused = 0, 0
    failed: Delivery | None = None
    with poster(deadline / 3) as connection:
        for facts in alerts:
            if clock() > until or refused >= _MOST_REFUSED:
                break
            delivery = _send(connection, endpoint, bodies_of(facts, writer, routing_key=key))
            if delivery.sent:
                refused = 0
                taken += failed is None
                continue
            failed, refused = failed or delivery, refused + 1
            if delivery.retry_after is not None:
                break
    if failed is None and taken < len(alerts):
        failed = Delivery(sent=False, error=f"it took {taken} of {len(alerts)} in time; the rest follows")
    return Delivery(sent=True) if failed is None else replace(failed, taken=taken)


def endpoint_of(url: str) -> str:
    """Where events go: `?url=`, or that of `?region=`, or the service's first."""
    query = parse_qs(urlsplit(url).query)
    region = query.get("region", ["us"])[0].lower()
    return query.get("url", [_ENDPOINTS.get(region, _ENDPOINTS["us"])])[0]


def bodies_of(facts: Facts, writer: Writer, *, routing_key: str) -> list[dict[str, Any]]:
    """What is posted for one alert: one event; for a test also the end of the incident that it opens."""
    action = _ACTIONS.get(name_of(facts), "trigger")
    event = {"routing_key": routing_key, "event_action": action, "dedup_key": facts.get("incident_key")}
    if action != "trigger":
        return [event]
    opened = event | {"client": "pgcron-runner", "payload": _payload(facts, writer)}
    return [opened, event | {"event_action": "resolve"}] if name_of(facts) == "test" else [opened]


def _payload(facts: Facts, writer: Writer) -> dict[str, Any]:
    message = writer.write([facts], PLAIN)
    details = {key: facts[key] for key in _DETAILS if key in facts}
    if commands := commands_of(facts):
        details["more"] = commands
    if writer.template is not None:
        details["text"] = message.body
    payload = {
        "summary": message.title[:_LONGEST_SUMMARY],
        "source": str(facts.get("host") or facts.get("job") or "pgcron-runner"),
        "severity": _SEVERITIES.get(event_of(facts).severity, "info"),
        "component": job_of(facts),
        "group": facts.get("queue"),
        "class": name_of(facts),
        "timestamp": facts.get("finished_at") or facts.get("created_at"),
        "custom_details": details,
    }
    return {key: value for key, value in payload.items() if value is not None}


def _send(connection: Poster, endpoint: str, events: Sequence[dict[str, Any]]) -> Delivery:
    delivery = Delivery(sent=True)
    for event in events:
        delivery = connection.post_json(endpoint, event)
        if not delivery.sent:
            break
    return delivery
