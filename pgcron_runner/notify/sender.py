"""The program that sends: one message after the other, from its standard input, until that ends. Started by `notifier`.

A process of its own, since plugins may block for ever, leak, or print secrets: it can be killed, and it ends itself by
an alarm when a message takes longer than its deadline, also when nobody is left to kill it.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from dataclasses import asdict, replace

from pgcron_runner.model import Delivery
from pgcron_runner.notify.messages import Form, Message, render
from pgcron_runner.notify.redaction import redact
from pgcron_runner.notify.request import Request, frame, read_frame
from pgcron_runner.notify.targets import PAGERDUTY, WEBHOOKS, scheme_of, secrets_of

_GRACE = 1.0
_MOST_WORDS = 500


def main() -> None:
    """Serves until the worker closes the pipe or dies."""
    # Plugins print what they like; the answers go where they cannot.
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while (asked := read_frame(sys.stdin.buffer)) is not None:
        request = Request(**asked)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(math.ceil(request.deadline + _GRACE))
        delivery = send(request)
        signal.alarm(0)
        answers.write(frame(asdict(delivery)))
        answers.flush()


def send(request: Request) -> Delivery:
    """One message. Never raises; the error has no secrets of the target in it."""
    try:
        delivery = _send(request)
    except Exception as error:  # a plugin's fault, or ours: the alert is tried again
        delivery = Delivery(sent=False, error=f"{type(error).__name__}: {error}")
    if delivery.error is None:
        return delivery
    return replace(delivery, error=redact(delivery.error, secrets_of(request.target))[:_MOST_WORDS])


def _send(request: Request) -> Delivery:
    scheme = scheme_of(request.target)
    if scheme == PAGERDUTY:
        from pgcron_runner.notify.pagerduty import send_to_pagerduty

        return send_to_pagerduty(request)
    if scheme in WEBHOOKS:
        from pgcron_runner.notify.webhook import send_to_webhook

        return send_to_webhook(request)
    from pgcron_runner.notify.services import is_understood, send_with_apprise

    if scheme is None or not is_understood(request.target):
        return Delivery(sent=False, error="Apprise does not understand this target", permanent=True)
    error = send_with_apprise(request.target, lambda form: _write(request, form))
    return Delivery(sent=error is None, error=error)


def _write(request: Request, form: Form) -> Message:
    built_in = render(request.payloads, form=form, zone=request.zone)
    if request.template is None:
        return built_in
    from pgcron_runner.notify.templates import render_template

    return render_template(request.template, request.payloads, built_in)


if __name__ == "__main__":
    main()
