"""The program that sends: one message after the other, from its standard input, until that ends. Started by `process`.

A process of its own, since plugins may block for ever, leak, or print secrets: it can be killed, and it ends itself by
an alarm when a message takes longer than its deadline, also when nobody is left to kill it.
"""

from __future__ import annotations

import math
import os
import re
import resource
import signal
import sys
from dataclasses import replace
from datetime import UTC, datetime

from pgcron_runner.model import Delivery
from pgcron_runner.notify.digest import worst_of
from pgcron_runner.notify.facts import presentable
from pgcron_runner.notify.markup import PLAIN, cleaned
from pgcron_runner.notify.redaction import redact, secrets_of_environment
from pgcron_runner.notify.request import Request, encode_delivery, read_frame
from pgcron_runner.notify.targets import PAGERDUTY, WEBHOOKS, scheme_of
from pgcron_runner.notify.writing import Writer

_GRACE = 1.0
_MOST_WORDS = 500
# Parts of a target that are worth hiding from those who read the channel. Others may be any word, host or address.
_TOKEN = re.compile(r"(?=[^@]*\d)[^@\s]{12,}")


def main() -> None:
    """Serves until the worker closes the pipe or dies."""
    # Plugins print what they like; the answers go where they cannot.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # A core file would hold the targets.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    while (asked := read_frame(sys.stdin.buffer)) is not None:
        request = Request(**asked)
        signal.alarm(math.ceil(request.deadline + _GRACE))
        delivery = send(request)
        signal.alarm(0)
        answers.write(encode_delivery(delivery))
        answers.flush()


def send(request: Request) -> Delivery:
    """One message. Never raises; the error has no secrets of the target in it."""
    try:
        delivery = _send(request)
    except Exception as error:  # a plugin's fault, or ours: the alert is tried again
        delivery = Delivery(sent=False, error=f"{type(error).__name__}: {error}")
    if delivery.error is None:
        return delivery
    # Proxies have passwords, too.
    secrets = request.secrets | secrets_of_environment(os.environ)
    return replace(delivery, error=redact(cleaned(delivery.error), secrets)[:_MOST_WORDS])


def _send(request: Request) -> Delivery:
    tokens = {secret for secret in request.secrets if _TOKEN.fullmatch(secret)}
    alerts = presentable(request.payloads, tokens.union(request.masked))
    writer = Writer(request.zone, request.template)
    scheme = scheme_of(request.url)
    if scheme == PAGERDUTY:
        from pgcron_runner.notify.pagerduty import send_to_pagerduty

        return send_to_pagerduty(request.url, alerts, writer, request.deadline)
    if scheme in WEBHOOKS:
        from pgcron_runner.notify.webhook import body_of, send_to_webhook

        now = datetime.now(UTC)
        body = body_of(request.message_key, alerts, writer.write(alerts, PLAIN), now)
        return send_to_webhook(request.url, request.secret, body, now=now, deadline=request.deadline)
    from pgcron_runner.notify.services import is_understood, send_with_apprise

    if scheme is None or not is_understood(request.url):
        return Delivery(sent=False, error="Apprise does not understand this target", permanent=request.is_final)
    error = send_with_apprise(request.url, worst_of(alerts).severity, lambda form: writer.write(alerts, form))
    return Delivery(sent=error is None, error=error)


if __name__ == "__main__":
    main()
