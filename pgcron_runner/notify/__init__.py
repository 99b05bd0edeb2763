"""Sending messages to channels. It knows no database; Apprise, Jinja2 and secrets stay in processes of their own."""

from pgcron_runner.notify.notifier import Notifier

__all__ = ["Notifier"]
