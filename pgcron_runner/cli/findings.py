"""What the doctor makes of what it was told: ok, warn or fail, in words, with what to do about it. Pure."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pgcron_runner import __version__
from pgcron_runner.cli.output import plural, span
from pgcron_runner.store.catalog import Health, ListedWorker
from pgcron_runner.store.inquiry import Server

_OLDEST_SERVER = 140_000
_CLOCKS_AGREE = timedelta(seconds=2)
_LONG_TRANSACTION = timedelta(minutes=10)
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: ok, warn or fail, and what to do about it."""

    check: str
    result: str
    words: str


def of_version(server: Server) -> Finding:
    words = f"PostgreSQL {server.version}; pgcron-runner {__version__} on Python {platform.python_version()}"
    if server.version_number < _OLDEST_SERVER:
        return Finding("version", "fail", f"{words}: PostgreSQL 14 or newer is needed")
    return Finding("version", "ok", words)


def of_session(*, is_pooled: bool) -> Finding:
    """It was looked at when the session was opened, which is refused where a pooler lends it to others."""
    words = "by way of a pooler, which keeps it for this client alone" if is_pooled else "direct, no pooler in between"
    return Finding("session", "ok", words)


def of_clock(ahead: timedelta) -> Finding:
    """`ahead`: the server's clock less this host's."""
    apart = f"the server is {span(abs(ahead))} {'ahead of' if ahead > timedelta(0) else 'behind'} this host"
    if abs(ahead) > _CLOCKS_AGREE:
        return Finding("clock", "warn", f"{apart}. Jobs go by the server's; let both keep time (chrony, ntpd)")
    return Finding("clock", "ok", apart)


def of_workers(workers: Sequence[ListedWorker]) -> Finding:
    """Whether all that live are of one version, this one."""
    others = [f"{worker.name} has {worker.version}" for worker in workers if worker.version != __version__]
    if others:
        words = f"here is {__version__}, but {_some(others)}. After an upgrade restart the workers, one by one"
        return Finding("workers", "warn", words)
    return Finding("workers", "ok", f"{len(workers)} alive" if workers else "none is alive")


def of_zone_data(own: str, workers: Sequence[ListedWorker]) -> Finding:
    """After a government's change of mind, older data names other instants than newer."""
    newest = max([own, *(worker.zone_data for worker in workers)])
    behind = [f"{worker.name} has {worker.zone_data}" for worker in workers if worker.zone_data < newest]
    if own < newest:
        behind.insert(0, f"this host has {own}")
    if behind:
        words = f"the newest is {newest}, but {_some(behind)}. Upgrade it there (pip install -U tzdata), and restart"
        return Finding("zone data", "warn", f"{words}. Till then jobs go by the newest")
    return Finding("zone data", "ok", f"{own} here, and on {plural(len(workers), 'living worker')}")


def of_alerts(health: Health, unusable: Sequence[str]) -> Finding:
    """Whether anybody would be told. Where there are no jobs there is nothing to tell.

    `unusable`: what is wrong with each of the channels that can send nothing, in words that tell no secret.
    """
    if unusable:
        return Finding("alerts", "warn", f"{_some(unusable)} Remove it and add it again: pgcron-runner channel add")
    if health.alerts_undelivered:
        words = f"{plural(health.alerts_undelivered, 'message is', 'messages are')} not taken by the channel"
        return Finding("alerts", "warn", f"{words}. See what it says: pgcron-runner channel list")
    if health.channels:
        return Finding("alerts", "ok", f"{plural(health.channels, 'channel')}; try each: pgcron-runner channel test")
    if health.jobs_enabled:
        words = "no channel is configured: nobody is told of jobs that fail. Add one: pgcron-runner channel add"
        return Finding("alerts", "warn", words)
    return Finding("alerts", "ok", "no channel is configured, and no job that could fail")


def of_rights(server: Server, missing: Sequence[tuple[str, str]]) -> Finding:
    """`missing`: table or function, and right."""
    if missing:
        role = _identifier(server.role)
        granted = (
            f"grant select, insert, update, delete on all tables in schema pgcron to {role}; "
            f"grant execute on all functions in schema pgcron to {role}"
        )
        words = f"role {server.role} may not {_grouped(missing)}. As its owner: {granted}"
        return Finding("rights", "fail", words)
    if not server.may_terminate:
        words = (
            f"role {server.role} may not call pg_terminate_backend: the locks of a dead worker stay until it times out"
        )
        return Finding("rights", "warn", words)
    return Finding("rights", "ok", f"role {server.role} may do all that workers do, and end its own sessions")


def _grouped(missing: Sequence[tuple[str, str]]) -> str:
    """`insert, update on jobs, runs; execute on 9 functions`."""
    rights: dict[str, list[str]] = {}
    for name, right in missing:
        rights.setdefault(name, []).append(right)
    names: dict[str, list[str]] = {}
    for name, lacking in rights.items():
        names.setdefault(", ".join(lacking), []).append(name)
    functions = len(names.pop("execute", []))
    told = [f"{lacking} on {', '.join(tables)}" for lacking, tables in names.items()]
    return "; ".join([*told, *([f"execute {plural(functions, 'function')}"] if functions else [])])


def of_transactions(server: Server) -> Finding:
    """The oldest one: as long as it is open, vacuum keeps every row version that is newer."""
    if server.oldest_age is None:
        return Finding("transactions", "ok", "none is open, as far as this role may see")
    who = f"role {server.oldest_role}, {server.oldest_application or 'unnamed'}, {server.oldest_state}"
    if server.oldest_pid is not None:
        who = f"pid {server.oldest_pid}, {who}"
    words = f"the oldest has been open for {span(server.oldest_age)} ({who})"
    if server.oldest_age > _LONG_TRANSACTION:
        return Finding("transactions", "warn", f"{words}: vacuum cannot clean up behind it. {_to_end_it(server)}")
    return Finding("transactions", "ok", words)


def _to_end_it(server: Server) -> str:
    if server.oldest_pid is None:
        return f"Commit or roll it back: rollback prepared '{server.oldest_application}'"
    return f"If it is stuck, end it: select pg_terminate_backend({server.oldest_pid})"


def of_connections(server: Server) -> Finding:
    """By the limit that is nearest: the server's, the role's own, or the database's."""
    limits = [
        (server.connections, server.connections_used, "the server's", "Raise max_connections"),
        (server.role_limit, server.role_used, f"role {server.role}'s", _more("role", server.role, server.role_limit)),
        (
            server.database_limit,
            server.database_used,
            f"database {server.database}'s",
            _more("database", server.database, server.database_limit),
        ),
    ]
    limit, used, whose, more = min((known for known in limits if known[0] >= 0), key=lambda known: known[0] - known[1])
    words = f"{used} of {whose} {limit} in use"
    if limit - used < max(10, limit // 10):
        return Finding("connections", "warn", f"{words}: a worker needs 3, and one for each SQL job. {more}")
    return Finding("connections", "ok", words)


def _more(what: str, name: str, limit: int) -> str:
    return f"alter {what} {_identifier(name)} connection limit {limit + 20}"


def _identifier(name: str) -> str:
    """A name as SQL has it."""
    return name if re.fullmatch("[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def _some(things: Sequence[str]) -> str:
    more = len(things) - _NAMED
    return ", ".join(things[:_NAMED]) + (f" and {more} more" if more > 0 else "")
