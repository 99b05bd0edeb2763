"""The one place where secrets are taken out of texts. It must not know what they are for."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "***"


def redact(text: str, secrets: Iterable[str]) -> str:
    """`text` with each secret masked; longer ones first, so that no part of one is left."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if secret:
            text = text.replace(secret, MASK)
    return text


def redact_patterns(text: str, patterns: Iterable[str]) -> str:
    """`text` with all that the patterns match masked; one that is no regular expression masks nothing, and says so."""
    for pattern in patterns:
        try:
            text = re.sub(pattern, MASK, text)
        except re.error as error:
            text += f"\n(the job's redact pattern {pattern!r} is not a regular expression: {error})"
    return text
