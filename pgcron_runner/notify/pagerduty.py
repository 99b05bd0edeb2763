"""PagerDuty, Events API v2: one incident there for one here, opened, acknowledged and resolved under the same key.

Apprise's own plugin opens a new incident with every message. Runs in a sender process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pgcron_runner.model import Delivery
from pgcron_runner.notify.messages import Form, render
from pgcron_runner.notify.posting import post_json
from pgcron_runner.notify.request import Request

_ENDPOINT = "https://events.pagerduty.com/v2/enqueue"
_LONGEST_SUMMARY = 1024
_ACTIONS = {"recovered": "resolve", "acknowledged": "acknowledge"}
_SEVERITIES = {"late": "warning", "missed": "warning", "long": "warning", "test": "info"}


def send_to_pagerduty(request: Request) -> Delivery:
    """An event for each alert: a digest would open one incident for many. What is sent twice changes nothing there."""
    split = urlsplit(request.target)
    url = parse_qs(split.query).get("url", [_ENDPOINT])[0]
    delivery = Delivery(sent=True)
    for facts in request.payloads:
        delivery = post_json(url, event_of(facts, routing_key=split.netloc, zone=request.zone), headers={})
        if not delivery.sent:
            break
    return delivery


def event_of(facts: Mapping[str, Any], *, routing_key: str, zone: str | None = None) -> dict[str, Any]:
    """The body for one alert."""
    name = str(facts.get("event"))
    action = _ACTIONS.get(name, "trigger")
    event: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": action,
        "dedup_key": facts.get("incident_key"),
    }
    if action == "trigger":
        message = render([facts], form=Form.PLAIN, zone=zone)
        event["payload"] = {
            "summary": message.title[:_LONGEST_SUMMARY],
            "source": str(facts.get("host") or facts.get("job") or "pgcron-runner"),
            "severity": _SEVERITIES.get(name, "error"),
            "component": facts.get("job"),
            "group": facts.get("queue"),
            "class": name,
            "custom_details": {"text": message.body},
        }
        if facts.get("finished_at"):
            event["payload"]["timestamp"] = facts["finished_at"]
    return event
