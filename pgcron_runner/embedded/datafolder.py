"""Makes data folders with initdb; knows nothing of where they lie or how long they stay."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pgcron_runner.embedded.host import as_server_user, give_to_server_user, run
from pgcron_runner.embedded.programs import Programs


def create_data(data: Path, programs: Programs, *, password: str | None, sync: bool) -> None:
    """A new data folder: UTF-8, sorted by code point on every host alike, in UTC; its superuser is postgres.

    Its parent must belong to the server's user. Without `sync` it may be lost if the machine goes down.
    """
    data.mkdir(mode=0o700)
    give_to_server_user(data)
    builtin = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if programs.version >= 17 else []
    with tempfile.NamedTemporaryFile(dir=data.parent, mode="w") as secret:
        # Always a password, if one that nobody knows: should somebody open a port, it is not an open door.
        secret.write(password or secrets.token_urlsafe(24))
        secret.flush()
        give_to_server_user(Path(secret.name))
        arguments = [
            *("-D", str(data), "--username=postgres", f"--pwfile={secret.name}"),
            *("--auth-local=trust", "--auth-host=scram-sha-256"),
            *("--encoding=UTF8", "--locale=C", *builtin),
            *([] if sync else ["--no-sync"]),
        ]
        run(programs.bin_dir / "initdb", arguments, as_user=as_server_user())
    add_settings(data, {"timezone": "UTC", "log_timezone": "UTC"})


def add_settings(data: Path, settings: Mapping[str, str]) -> None:
    """Append to postgresql.conf, where `alter system` can still override."""
    with (data / "postgresql.conf").open("a", encoding="utf-8") as conf:
        for name, value in settings.items():
            quoted = value.replace("\\", "\\\\").replace("'", "''")
            conf.write(f"{name} = '{quoted}'\n")
