"""Loaded by the sender processes of tests, as any such file on their path would be: bad plugins, a dead resolver.

dying:// prints its target and ends the process; printing:// prints and logs it, and refuses; raising:// raises with it;
forking:// lets a program loose and hangs; a host named udp-PORT waits for a resolver at that port.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from typing import Any, NoReturn

_getaddrinfo = socket.getaddrinfo


def wait_for_resolver(host: Any, *args: Any, **kwargs: Any) -> Any:
    """A question to a name server, and the wait for its answer, which is as long as the C library pleases."""
    if not str(host).startswith("udp-"):
        return _getaddrinfo(host, *args, **kwargs)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(("127.0.0.1", int(host[4:])))
        asking.send(b"who is " + host.encode())
        return asking.recv(512)


socket.getaddrinfo = wait_for_resolver


def die(*args: Any, meta: dict[str, Any], **kwargs: Any) -> NoReturn:
    print("no more of", meta["url"], file=sys.stderr, flush=True)
    os._exit(3)


def speak(*args: Any, meta: dict[str, Any], **kwargs: Any) -> bool:
    for text in (meta["url"], os.environ.get("PGPASSWORD", "")):
        print(text, flush=True)
        print(text, file=sys.stderr, flush=True)
        logging.getLogger("anybody").error("%s", text)
        logging.getLogger("apprise").error("refused by %s", text)
    return False


def fail(*args: Any, meta: dict[str, Any], **kwargs: Any) -> NoReturn:
    raise RuntimeError(f"cannot reach {meta['url']}")


def fork(*args: Any, meta: dict[str, Any], **kwargs: Any) -> None:
    subprocess.Popen(["sleep", "300"])
    time.sleep(300)


def register() -> None:
    from apprise.decorators import notify

    for scheme, plugin in (("dying", die), ("printing", speak), ("raising", fail), ("forking", fork)):
        notify(on=scheme)(plugin)  # type: ignore[no-untyped-call]


if sys.argv[0] == "-m":
    # The other programs of a test must not wait for Apprise.
    register()
