"""The message as a channel wants it: by its template where it has one, else the built-in one. It sends nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgcron_runner.notify.digest import render_all
from pgcron_runner.notify.markup import Form
from pgcron_runner.notify.messages import Facts, Message


@dataclass(frozen=True, slots=True)
class Writer:
    """`zone`: for times of jobs that have none; `template`: the channel's own text."""

    zone: str | None = None
    template: str | None = None

    def write(self, alerts: Sequence[Facts], form: Form) -> Message:
        """One message for these alerts, whose facts are presentable."""
        built_in = render_all(alerts, form, self.zone)
        if self.template is None:
            return built_in
        # Loads Jinja2, which most have no use for.
        from pgcron_runner.notify.templates import render_template

        return render_template(self.template, alerts, built_in, form.longest)
