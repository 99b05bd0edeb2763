"""The home of Apprise: which URLs it understands, and a message to one of them. For sender processes and checks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import apprise

from pgcron_runner.notify.messages import Form, Message


def known_schemes() -> list[str]:
    """All that Apprise has a plugin for."""
    manager: Any = apprise.manager_plugins.NotificationManager  # type: ignore[attr-defined,unused-ignore]
    return sorted({str(scheme).lower() for scheme in manager().schemas()})


def is_understood(url: str) -> bool:
    """Whether Apprise can make something of it."""
    return apprise.Apprise.instantiate(url, suppress_exceptions=True) is not None


def send_with_apprise(url: str, write: Callable[[Form], Message]) -> str | None:
    """Sends one message; None: it was taken. Else what Apprise said of it, with secrets still in it."""
    words: list[str] = []
    plugin = apprise.Apprise.instantiate(url, suppress_exceptions=True)
    if plugin is None:
        return "Apprise does not understand this target"
    # One, or several with the preferred one first.
    formats = getattr(plugin, "notify_format", ())
    is_markdown = (formats[:1] if isinstance(formats, tuple) else (formats,)) == (apprise.NotifyFormat.MARKDOWN,)
    message = write(Form.MARKDOWN if is_markdown else Form.PLAIN)
    plugin.overflow_mode = apprise.OverflowMode.TRUNCATE
    service = apprise.Apprise()
    service.add(plugin)
    with _listening(words):
        try:
            # The result is no bool: only bool() of it tells.
            taken = bool(
                service.notify(
                    body=message.body,
                    title=message.title,
                    notify_type=apprise.NotifyType.WARNING,
                    body_format=apprise.NotifyFormat.MARKDOWN if is_markdown else apprise.NotifyFormat.TEXT,
                )
            )
        except Exception as error:  # plugins raise what they like
            return f"{type(error).__name__}: {error}"
    return None if taken else "; ".join(words[-3:]) or "Apprise could not send it, and did not say why"


class _listening(logging.Handler):  # noqa: N801 # used as a context manager
    """Keeps what Apprise says, which is all that tells why, and lets none of it out."""

    def __init__(self, words: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._words = words

    def emit(self, record: logging.LogRecord) -> None:
        self._words.append(record.getMessage())

    def __enter__(self) -> None:
        logger = logging.getLogger("apprise")
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("apprise").removeHandler(self)
