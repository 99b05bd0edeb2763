"""The operating system's user that a command runs as, where its job names one. It must not know tasks."""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import dataclass, field
from typing import Any

from pgcron_runner.errors import PgcronError

_EXAMPLE = 'for example "nobody" or "www-data:adm"'


class BadAccountError(PgcronError):
    """`args.run_as` names nobody, or nobody that this worker may become."""


@dataclass(frozen=True, slots=True)
class Account:
    """Who a command is, and what it finds of that in its environment.

    `ids`: the user, the group and further groups. Empty where the command runs as the worker itself.
    """

    ids: tuple[int, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def owner(self) -> tuple[int, int] | None:
        """The user and the group, for files that the command is to write; None: the worker's."""
        return (self.ids[0], self.ids[1]) if self.ids else None


def find_account(run_as: Any) -> Account:
    """The account for `user` or `user:group`; may wait for a name service. Raises BadAccountError."""
    if not isinstance(run_as, str) or not run_as.strip():
        raise BadAccountError(f"args.run_as must be the name of a user, or user:group, {_EXAMPLE}; it is {run_as!r}")
    name, colon, group_name = run_as.strip().partition(":")
    user = _user(name)
    group = _group(group_name) if colon else user.pw_gid
    environment = {
        "HOME": user.pw_dir,
        "LOGNAME": user.pw_name,
        "SHELL": user.pw_shell or "/bin/sh",
        "USER": user.pw_name,
    }
    if os.geteuid() != 0:
        if (user.pw_uid, group) == (os.geteuid(), os.getegid()):
            return Account((), environment)
        raise BadAccountError("args.run_as needs a worker that runs as root")
    groups = [number for number in os.getgrouplist(user.pw_name, group) if number != group]
    return Account((user.pw_uid, group, *groups), environment)


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except (KeyError, ValueError, OverflowError):
        raise BadAccountError(f"args.run_as: this host has no user {name!r}, {_EXAMPLE}") from None


def _group(name: str) -> int:
    try:
        return (grp.getgrgid(int(name)) if name.isdecimal() else grp.getgrnam(name)).gr_gid
    except (KeyError, ValueError, OverflowError):
        raise BadAccountError(f"args.run_as: this host has no group {name!r}, {_EXAMPLE}") from None
