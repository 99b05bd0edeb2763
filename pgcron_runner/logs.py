"""Structured logs: events with fields, for people on a terminal, as JSON for machines. The home of structlog."""

from __future__ import annotations

import logging
import sys
from typing import Any, cast

import structlog

# Without the values of variables: passwords and tokens are among them.
_TRACEBACKS = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose calls are `log.info("event_name", field=value)`."""
    return cast(structlog.typing.FilteringBoundLogger, structlog.get_logger(part=name.removeprefix("pgcron_runner.")))


def configure_logs(*, as_json: bool = False, level: str = "info", **context: Any) -> None:
    """Sends all logs to standard error, once per process. `context` is on every line."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), pad_event_to=24, exception_formatter=structlog.dev.plain_traceback
        )
    )
    # What libraries log would come as bare text between the lines.
    for library in ("psycopg", "aiohttp"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([_TRACEBACKS] if as_json else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**context)
