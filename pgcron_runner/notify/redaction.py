"""The one place where secrets are taken out of texts. It must not know what they are for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

MASK = "***"
_NAMES = re.compile(
    r"(?:^|_)(?:(?:PG)?PASS(?:WORD|WD|PHRASE)?|SECRET|TOKEN|(?:API)?KEY|CREDENTIALS?)\d*(?:_(?!(?:.*_)?(?:FILE|PATH|DIR)$)|$)",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_IN_DSN = re.compile(r"\bpassword\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S+))", re.IGNORECASE)
# What is shorter may be anything, and its mask would be all over an innocent text.
_SHORTEST = 6


def redact(text: str, secrets: Iterable[str]) -> str:
    """`text` with each secret masked; longer ones first, so that no part of one is left."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if secret:
            text = text.replace(secret, MASK)
    return text


def redact_patterns(text: str, patterns: Iterable[re.Pattern[str]]) -> str:
    """`text` with all that the patterns match masked."""
    for pattern in patterns:
        text = pattern.sub(MASK, text)
    return text


def compile_patterns(patterns: Iterable[object]) -> tuple[list[re.Pattern[str]], list[str]]:
    """Those that are regular expressions, and a note for each that is none, which does not quote it."""
    compiled, notes = [], []
    for number, pattern in enumerate(patterns, 1):
        try:
            compiled.append(re.compile(str(pattern)))
        except (re.error, RecursionError, OverflowError) as error:
            notes.append(f"redact pattern {number} of the job masks nothing: {error}")
    return compiled, notes


def forms_of(secret: str) -> set[str]:
    """A secret as it is, and as URLs would write it."""
    return {secret, quote(secret, safe=""), quote(secret)}


def secrets_of_environment(environ: Mapping[str, str]) -> frozenset[str]:
    """Values that are secret by the name of their variable, and passwords in URLs and connection strings.

    Best effort, for the output of commands. Of one with several lines each line is one.
    """
    found: set[str] = set()
    for name, value in environ.items():
        found |= {password for pair in _IN_DSN.findall(value) for password in pair}
        found |= set(_IN_URL.findall(value))
        if _NAMES.search(name):
            found |= {line.strip() for line in value.splitlines()}
    return frozenset(form for secret in found if len(secret) >= _SHORTEST for form in forms_of(secret))
