"""What is masked before anything is made of an alert."""

from __future__ import annotations

import pytest

from pgcron_runner.notify.facts import presentable
from pgcron_runner.notify.redaction import redact, secrets_of_environment
from tests.notify.facts import facts


def test_patterns_of_the_job_mask_all_that_others_have_written() -> None:
    texts = {"error": "password=a", "reason": "password=b", "problem": "password=c", "output": "x password=d\ny"}
    [shown] = presentable([facts(redact=[r"(?<=password=)\S+"], **texts)])
    assert [shown[key] for key in texts] == ["password=***"] * 3 + ["x password=***\ny"]
    assert "redact" not in shown


def test_a_pattern_that_is_none_is_said_and_not_shown() -> None:
    [shown] = presentable([facts(redact=["(s3cr3t", r"\d+"], output="4711 abc")])
    assert shown["output"] == "*** abc"
    [note] = shown["notes"]
    assert note == "redact pattern 1 of the job masks nothing: missing ), unterminated subpattern at position 0"


def test_what_takes_too_long_to_mask_is_left_out_and_the_alert_goes_on() -> None:
    slow = facts(redact=[r"(a+)+$"], output="a" * 60 + "b", error="fine")
    shown = presentable([slow, slow, facts()])
    left_out = "(left out: masking it took too long)"
    assert [alert["output"] for alert in shown] == [left_out, left_out, "copying\nno space left"]
    assert shown[2]["error"] == "exited with code 2"


def test_secrets_that_are_known_are_masked_first() -> None:
    [shown] = presentable([facts(output="token is s3cr3t-1", error="s3cr3t-1")], ["s3cr3t-1"])
    assert (shown["output"], shown["error"]) == ("token is ***", "***")


def test_what_commands_a_terminal_or_turns_the_text_is_gone() -> None:
    text = "\x1b[31mred\x1b[0m\r\nnext\x00 \x1b]0;title\x07\u202eevil\u2028\tTab"
    [shown] = presentable([facts(output=text, job="a\x1b[2Jb", tags=["x\x07"])])
    assert shown["output"] == "red\nnext evil\tTab"
    assert (shown["job"], shown["tags"]) == ("ab", ["x"])


def test_numbers_are_numbers_and_null_is_nothing() -> None:
    [shown] = presentable([facts(failures="7", attempt={"x": 1}, host=None)])
    assert (shown["failures"], shown["attempt"]) == (7, 0)
    assert "host" not in shown


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("API_TOKEN", "abc-123456", {"abc-123456"}),
        ("PGPASSWORD", "hunter22", {"hunter22"}),
        ("AWS_SECRET_ACCESS_KEY", "a/b+c1234", {"a/b+c1234", "a%2Fb%2Bc1234", "a/b%2Bc1234"}),
        ("DATABASE_URL", "postgresql://u:hunter22@db/x", {"hunter22"}),
        ("PGCRON_DSN", "host=db password='hunter 22' user=x", {"hunter 22", "hunter%2022"}),
        ("SIGNING_KEY", "line-one-1\nline-two-2", {"line-one-1", "line-two-2"}),
        ("TLS_KEY_FILE", "/etc/tls/key.pem", set()),
        ("KEYBOARD", "qwertz-de", set()),
        ("PWD", "/home/somebody", set()),
        ("TOKEN", "short", set()),
    ],
)
def test_what_is_secret_in_an_environment(name: str, value: str, secrets: set[str]) -> None:
    assert secrets_of_environment({name: value}) == secrets


def test_a_secret_that_is_part_of_another_leaves_nothing_of_it() -> None:
    assert redact("abc-secret-xyz abc-secret", ["abc-secret", "abc-secret-xyz", ""]) == "*** ***"
