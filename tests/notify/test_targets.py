"""Targets: which are taken, where references lead, and that listings and errors show nothing that is secret."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pgcron_runner.errors import InvalidInput
from pgcron_runner.notify.targets import (
    Address,
    UnresolvedTarget,
    address_of,
    check_target,
    describe_target,
    resolve_target,
    secrets_of,
    split_secret,
)
from tests.notify.facts import TOKEN


@pytest.mark.parametrize(
    "target",
    [
        "pagerduty://ROUTING_KEY",
        "pagerduty://ROUTING_KEY?region=eu",
        "webhook+https://example.org/hook?a=b&secret=env:HOOK",
        "json://example.org/hook",
        "mailto://smtp.example.org?from=cron@example.org&to=ops@example.org",
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
        "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
        "env:OPS_URL",
    ],
)
def test_what_can_be_used_is_taken(target: str) -> None:
    assert check_target(target, {"HOOK": "x", "OPS_URL": "json://example.org"}) is None


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (f"slakc://{TOKEN}", "is not a scheme that Apprise or this program knows (did you mean slack://"),
        (f"slack://{TOKEN}", "lacks something that slack:// needs, or has it in the wrong place. For example: slack://{token_a}/"),
        (f"https://example.org/{TOKEN}", "put webhook+ in front. For example: webhook+https://…"),
        (TOKEN, "target: '(not a URL)' is not a URL. For example: slack://"),
        ("", "is not a URL"),
        ("pagerduty://", "is not a URL"),
        ("pagerduty:///", "has no routing key"),
        (f"pagerduty://{TOKEN}@{TOKEN}", "has more than one routing key. For example: pagerduty://ROUTING_KEY"),
        ("webhook+https:///x", "has no host"),
        (f"webhook+https://h:{TOKEN}/x", "is not a URL: the host or the port after it is none"),
        (f"webhook+https://[::1/{TOKEN}", "is not a URL: the host"),
        (f"webhook+https://example.org/{TOKEN}?secret=", "has an empty secret. For example: …?secret=env:HOOK_SECRET"),
        ("webhook+https://example.org/?secret=env:A-B", "secret: 'env:A-B' does not name an environment variable"),
        ("env:A B", "does not name an environment variable. For example: env:OPS_URL"),
        ("file:url", "is not a whole path. For example: file:/run/secrets/ops-url"),
        ("env:BROKEN", "target: 'env:BROKEN' leads here to what is not a URL"),
        (f"json://[::1/{TOKEN}", "lacks something that json:// needs"),
    ],
)  # fmt: skip
def test_what_nobody_can_use_is_refused_in_words_without_its_secrets(target: str, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_target(target, {"BROKEN": TOKEN})
    assert words in str(refused.value)
    assert TOKEN not in str(refused.value)


def test_what_may_be_there_for_the_workers_is_a_warning() -> None:
    assert (
        check_target("env:NOT_HERE", {}) == "here, there is no environment variable NOT_HERE. The workers must have it."
    )
    warning = check_target("file:/not/here", {})
    assert warning == "here, the file /not/here cannot be read: No such file or directory. The workers must have it."
    warning = check_target("webhook+https://example.org/?secret=env:NOT_HERE", {})
    assert warning == "here, there is no environment variable NOT_HERE. The workers must have it, since it signs."


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (f"slack://{TOKEN}/a/b", "slack://…"),
        (f"ntfy://{TOKEN}", "ntfy://…"),
        (f"pagerduty://{TOKEN}", "pagerduty://…"),
        (f"mailto://user:{TOKEN}@example.org", "mailto://…@example.org"),
        (f"mailtos://user:{TOKEN}@example.org:587/x?to=a@b.c", "mailtos://…@example.org/…"),
        (f"mailto://user:a/{TOKEN}@example.org", "mailto://…"),
        (f"mailto://user:a@{TOKEN}@example.org", "mailto://…"),
        (f"json://[::1]:80/{TOKEN}", "json://[::1]/…"),
        (f"webhook+https://{TOKEN}@example.org/{TOKEN}?secret={TOKEN}", "webhook+https://…@example.org/…"),
        ("webhook+http://example.org:8080", "webhook+http://example.org"),
        (f"webhook+http://[::1/{TOKEN}", "webhook+http://…"),
        ("env:OPS_URL", "env:OPS_URL"),
        ("file:/run/secrets/x", "file:/run/secrets/x"),
        (TOKEN, "(not a URL)"),
    ],
)
def test_a_listing_shows_scheme_and_host(target: str, shown: str) -> None:
    assert describe_target(target) == shown


def test_references_are_followed(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("\n  json://x/  \nmore\n")
    assert resolve_target(f"file:{file}", {}) == "json://x/"
    assert resolve_target(" env:A ", {"A": " json://y \n"}) == "json://y"
    assert resolve_target("json://z", {}) == "json://z"


def test_a_reference_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    empty, binary, pipe = tmp_path / "empty", tmp_path / "binary", tmp_path / "pipe"
    empty.write_text("\n \n")
    binary.write_bytes(b"\xff\xfe")
    os.mkfifo(pipe)
    for target, words in (
        ("env:A", "there is no environment variable A"),
        (f"file:{empty}", f"the file {empty} is empty"),
        (f"file:{binary}", f"the file {binary} cannot be read: it is not text"),
        # Nobody writes to it: to open it would wait for ever.
        (f"file:{pipe}", f"{pipe} is not a file"),
        (f"file:{tmp_path}", f"the file {tmp_path} cannot be read: Is a directory"),
        ("file:/a\x00b", "cannot be read"),
    ):
        with pytest.raises(UnresolvedTarget, match=re.escape(words)):
            resolve_target(target, {"A": "  "})


def test_the_secret_of_a_webhook_may_be_a_reference_and_is_no_part_of_its_address() -> None:
    target = "webhook+https://h/x?a=b%20c&secret=env:S&flag"
    assert address_of(target, {"S": TOKEN}) == Address("webhook+https://h/x?a=b%20c&flag", TOKEN)
    assert split_secret("webhook+https://h/?secret=a%20b") == ("webhook+https://h/", "a b")
    with pytest.raises(UnresolvedTarget, match="there is no environment variable S"):
        address_of(target, {})
    assert TOKEN not in repr(address_of(target, {"S": TOKEN}))
    # Others may mean something else by it.
    assert address_of("json://h/?secret=env:S", {}).url == "json://h/?secret=env:S"


@pytest.mark.parametrize(
    ("url", "secret", "shown"),
    [
        ("slack://TOKEN_A/TOKEN_B?footer=no", {"TOKEN_A", "TOKEN_B", "TOKEN_A/TOKEN_B"}, {"footer", "slack"}),
        ("mailto://user:p%40ss@example.org?mode=insecure", {"user", "p%40ss", "p@ss"}, {"example.org", "insecure"}),
        ("webhook+https://example.org:8443/hooks/abcd", {"hooks", "abcd"}, {"example.org", "8443"}),
        ("pagerduty://KEYS?url=http://localhost:1/PATHS", {"KEYS", "PATHS", "http://localhost:1/PATHS"}, {"http"}),
    ],
)  # fmt: skip
def test_what_is_secret_in_a_url(url: str, secret: set[str], shown: set[str]) -> None:
    assert secret | {url} <= secrets_of(url)
    assert not shown & secrets_of(url)
