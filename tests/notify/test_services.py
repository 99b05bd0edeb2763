"""Messages through Apprise: real plugins to real local servers, each in the form that its service shows."""

from __future__ import annotations

import email
import email.policy
import email.utils
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from pgcron_runner.model import Alert, Delivery
from pgcron_runner.notify import Notifier
from pgcron_runner.notify.events import Severity
from pgcron_runner.notify.markup import Form
from pgcron_runner.notify.messages import Message
from pgcron_runner.notify.sender import send
from pgcron_runner.notify.services import send_with_apprise, template_of
from tests.notify.facts import TOKEN, alert, channel
from tests.support.listeners import Hook, Mailbox, answering, hook, mailbox


@pytest.fixture
def server() -> Iterator[Hook]:
    with hook() as made:
        yield made


@pytest.fixture
def mails() -> Iterator[Mailbox]:
    with mailbox() as made:
        yield made


def deliver(target: str, *alerts: Alert, **columns: Any) -> Delivery:
    notifier = Notifier(environ={}, deadline=20)
    return send(notifier._request(channel(target, **columns), alerts or [alert()]))


def test_json_gets_the_message_as_it_is(server: Hook) -> None:
    assert deliver(f"json://{server.address}/hook", alert(output="a @here b")) == Delivery(sent=True)
    [posted] = server.posted
    assert (posted.path, posted.json["title"], posted.json["type"]) == ("/hook", "backup failed on db-1", "failure")
    assert posted.json["message"].startswith("Error: exited with code 2\nAttempt: 3 of 3\n")
    assert posted.json["message"].endswith("  | a @\u200bhere b")


@pytest.mark.parametrize(("event", "kind"), [("late", "warning"), ("recovered", "success"), ("test", "info")])
def test_the_kind_of_a_message_is_that_of_its_worst_event(event: str, kind: str, server: Hook) -> None:
    assert deliver(f"json://{server.address}/", alert("recovered"), alert(event)).sent
    assert server.posted[0].json["type"] == kind


def test_form_and_xml_get_it_too(server: Hook) -> None:
    assert deliver(f"form://{server.address}/").sent
    assert deliver(f"xml://{server.address}/").sent
    form, xml = server.posted
    assert parse_qs(form.body.decode())["title"] == ["backup failed on db-1"]
    assert b"<Subject>backup failed on db-1</Subject>" in xml.body


def test_ntfy_and_gotify_of_ones_own_get_it(server: Hook) -> None:
    assert deliver(f"ntfy://{server.address}/{TOKEN}").sent
    assert deliver(f"gotify://{server.address}/{TOKEN}").sent
    ntfy, gotify = server.posted
    assert "no space left" in ntfy.body.decode()
    assert (gotify.path, gotify.headers["X-Gotify-Key"]) == ("/message", TOKEN)
    assert gotify.json["title"] == "backup failed on db-1"


def test_mattermost_shows_markdown_so_it_gets_it(server: Hook) -> None:
    assert deliver(f"mmost://{server.address}/{TOKEN}", alert(job="no_*such*_job", output="x")).sent
    text = server.posted[0].json["text"]
    assert text.startswith(r"no\_\*such\*\_job failed on db-1")
    assert "- Error: `exited with code 2`" in text
    assert "```\nx\n```" in text


def test_slack_gets_code_and_calls_nobody(server: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    from apprise import manager_plugins

    slack = manager_plugins.NotificationManager()["slack"]  # type: ignore[attr-defined,no-untyped-call,unused-ignore]
    monkeypatch.setattr(slack, "webhook_url", f"http://{server.address}/services")
    server.answer = answering(200, b"ok")
    target = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
    assert deliver(target, alert(output="<!here> <b>x</b>", error="no_such *file*")).sent
    text = str(server.posted[0].json)
    assert "`no_such *file*`" in text
    assert "<!here>" not in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text


def test_mail_is_plain_text_with_the_address_as_it_is(mails: Mailbox) -> None:
    target = f"mailto://127.0.0.1:{mails.port}?from=cron@example.org&to=ops@example.org&mode=insecure"
    assert deliver(target, alert(output="mail to @ops or ops@example.org", job="Nächtlich ✓")) == Delivery(sent=True)
    mail = email.message_from_string(mails.mails[0], policy=email.policy.default)
    assert mail["Subject"] == "Nächtlich ✓ failed on db-1"
    assert email.utils.parseaddr(mail["From"]) == ("", "cron@example.org")
    body = mail.get_body(("plain",))
    assert body is not None
    assert "  | mail to @ops or ops@example.org" in body.get_content()


def test_a_name_with_line_breaks_makes_no_headers(mails: Mailbox) -> None:
    target = f"mailto://127.0.0.1:{mails.port}?from=cron@example.org&to=ops@example.org&mode=insecure"
    assert deliver(target, alert(job="x\r\nBcc: evil@example.org")).sent
    mail = email.message_from_string(mails.mails[0], policy=email.policy.default)
    assert (mail["Bcc"], mail["Subject"]) == (None, "x Bcc: evil@example.org failed on db-1")


@pytest.mark.parametrize(
    ("url", "markdown"),
    [
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", True),
        ("discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js", True),
        ("mmost://localhost/3ccdd113474722377935511fc85d3dd4", True),
        ("ntfy://localhost/topic", False),
        ("json://localhost", False),
        ("json://localhost?format=markdown", True),
        ("mailto://user:pass@example.org", False),
        ("tgram://123456789:abcdefg_hijklmnop/12315544/", False),
        ("matrix://user:pass@localhost/#room", False),
    ],
)
def test_each_service_gets_the_form_that_it_shows(url: str, markdown: bool) -> None:
    asked: list[Form] = []

    def write(form: Form) -> Message:
        asked.append(form)
        raise LookupError

    with pytest.raises(LookupError):
        send_with_apprise(url, Severity.ERROR, write)
    assert asked[0].markdown is markdown


def test_a_short_message_begins_with_what_matters() -> None:
    asked: list[Form] = []

    def write(form: Form) -> Message:
        asked.append(form)
        raise LookupError

    with pytest.raises(LookupError):
        send_with_apprise("bulksms://user:pass@+12125551234", Severity.ERROR, write)
    assert asked[0].longest <= 100


def test_a_long_output_is_cut_at_its_beginning(server: Hook) -> None:
    long = "\n".join("x" * 200 for _ in range(19)) + "\nthe last line"
    assert deliver(f"mmost://{server.address}/{TOKEN}", alert(output=long, error="e" * 999)).sent
    text = server.posted[0].json["text"]
    assert len(text) <= 4_000
    assert text.rstrip().endswith("the last line\n```")


# --------------------------------------------------------------------------------------------------------- refusals


def test_a_service_that_refuses_is_told_with_what_it_answered(server: Hook) -> None:
    server.answer = answering(500)
    delivery = deliver(f"json://{server.address}/{TOKEN}")
    assert not delivery.sent
    assert not delivery.permanent
    assert delivery.error is not None
    assert "500" in delivery.error
    assert "words" in delivery.error
    assert TOKEN not in delivery.error


def test_what_nobody_understands_is_given_up_but_not_where_it_can_be_put_right() -> None:
    error = "Apprise does not understand this target"
    assert deliver(f"nonsense://{TOKEN}") == Delivery(sent=False, error=error, permanent=True)
    request = Notifier(environ={"OPS": f"nonsense://{TOKEN}"})._request(channel("env:OPS"), [alert()])
    assert send(request) == Delivery(sent=False, error=error)


def test_how_a_url_looks_is_known() -> None:
    assert template_of("slack") == "slack://{token_a}/{token_b}/{token_c}"
