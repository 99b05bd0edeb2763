"""The home of Apprise: which URLs it understands, and a message to one of them. For sender processes and checks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

import apprise

from pgcron_runner.notify.events import Severity
from pgcron_runner.notify.markup import Form, escaped
from pgcron_runner.notify.messages import Message

_LEAST_ROOM, _MOST_ROOM = 60, 30_000
# What it is cut to may grow a little when it is made into HTML.
_SHARE = 0.9
# Apprise calls it text, and so it is not escaped; but they show Markdown.
_SHOW_MARKDOWN = ("mmost", "mmosts", "zulip")
_MAILS = ("mailto", "mailtos")
_TYPES = {
    Severity.ERROR: apprise.NotifyType.FAILURE,
    Severity.WARNING: apprise.NotifyType.WARNING,
    Severity.INFO: apprise.NotifyType.INFO,
    Severity.GOOD: apprise.NotifyType.SUCCESS,
}
# At the level of debugging it says why a plugin failed and what a service answered; all else there is noise.
_REASONS = ("Exception: ", "Response Details")
_MOST_WORDS = 3
_SILENT = logging.CRITICAL + 10


def known_schemes() -> list[str]:
    """All that Apprise has a plugin for."""
    return sorted(str(scheme).lower() for scheme in _plugins().schemas())


def template_of(scheme: str) -> str | None:
    """How a URL of this scheme looks, such as `slack://{token_a}/{token_b}/{token_c}`."""
    templates = getattr(_plugins()[scheme], "templates", ())
    return str(templates[0]).replace("{schema}", scheme) if templates else None


def is_understood(url: str) -> bool:
    """Whether Apprise can make something of it."""
    return _plugin(url) is not None


def send_with_apprise(url: str, severity: Severity, write: Callable[[Form], Message]) -> str | None:
    """Sends one message; None: it was taken. Else what Apprise said of it, with secrets still in it."""
    plugin = _plugin(url)
    if plugin is None:
        return "Apprise does not understand this target"
    scheme = url.partition(":")[0].lower()
    is_markdown = _takes_markdown(plugin)
    form = _form(plugin, markdown=is_markdown or scheme in _SHOW_MARKDOWN, defused=scheme not in _MAILS)
    message = write(form)
    if plugin.overflow_mode == apprise.OverflowMode.UPSTREAM and "overflow" not in parse_qs(url.partition("?")[2]):
        plugin.overflow_mode = apprise.OverflowMode.TRUNCATE
    # Without a place for titles it becomes the first line.
    title = escaped(message.title, form) if plugin.title_maxlen <= 0 else message.title
    service = apprise.Apprise()
    service.add(plugin)
    with _listening() as words:
        # The result is no bool: only bool() of it tells.
        taken = bool(
            service.notify(
                body=message.body,
                title=title,
                notify_type=_TYPES[severity],
                body_format=apprise.NotifyFormat.MARKDOWN if is_markdown else apprise.NotifyFormat.TEXT,
            )
        )
    return None if taken else "; ".join(words[-_MOST_WORDS:]) or "Apprise could not send it, and did not say why"


def _plugins() -> Any:
    return apprise.manager_plugins.NotificationManager()  # type: ignore[attr-defined,no-untyped-call,unused-ignore]


def _plugin(url: str) -> Any:
    """None where Apprise cannot make one."""
    # It logs whole targets.
    logging.getLogger("apprise").setLevel(_SILENT)
    asset = apprise.AppriseAsset(app_id="pgcron-runner", app_desc="pgcron-runner alerts")
    return apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)


def _takes_markdown(plugin: Any) -> bool:
    """Whether it prefers Markdown, or was told to by `?format=`, or knows nothing better: a chat."""
    preferred = plugin.resolve_format()
    formats = plugin.notify_format if isinstance(plugin.notify_format, tuple) else (plugin.notify_format,)
    if apprise.NotifyFormat.HTML not in formats:
        preferred = plugin.resolve_format(apprise.NotifyFormat.MARKDOWN)
    return bool(preferred == apprise.NotifyFormat.MARKDOWN)


def _form(plugin: Any, *, markdown: bool, defused: bool) -> Form:
    room = int(plugin.body_maxlen * _SHARE)
    if plugin.title_maxlen <= 0:
        # The title comes out of it, and is what matters most.
        room -= min(200, room // 2)
    return Form(markdown=markdown, defused=defused, longest=max(min(room, _MOST_ROOM), _LEAST_ROOM))


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Keeps what Apprise says of it, which is all that tells why, and lets none of it out."""
    words: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if record.levelno >= logging.WARNING or any(reason in text for reason in _REASONS):
                words.append(" ".join(text.split()))

    logger, listener = logging.getLogger("apprise"), Listener()
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    logger.addHandler(listener)
    try:
        yield words
    finally:
        logger.removeHandler(listener)
        logger.setLevel(_SILENT)
