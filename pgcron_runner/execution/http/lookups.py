"""Looks up names, in threads that nobody has to wait for. It must not know which addresses may be called."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress

# Some are left behind by runs that were stopped, until the system's resolver gives up on them.
_MOST_THREADS = 64
# Nobody means to have more tried, one after the other.
_MOST_ADDRESSES = 16

_Found = list[str] | OSError


class Lookups:
    """The resolver of the system, as a coroutine that can be cancelled.

    A thread in getaddrinfo cannot be stopped, and takes minutes where the name servers are silent. In the loop's own
    threads it would hold up others (the worker's way back to its database), in any pool's the end of the process.
    """

    def __init__(self, most: int = _MOST_THREADS) -> None:
        self._free = asyncio.Semaphore(most)

    async def find(self, host: str) -> list[str]:
        """The addresses of a name, in the order in which they are to be tried. Raises socket.gaierror."""
        await self._free.acquire()
        answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        thread = threading.Thread(target=self._look_up, args=(host, answer), name="pgcron-lookup", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no thread to give
            self._free.release()
            raise
        return await answer

    def _look_up(self, host: str, answer: asyncio.Future[list[str]]) -> None:
        found = _addresses(host)
        with suppress(RuntimeError):  # the loop is closed: the worker has ended meanwhile
            answer.get_loop().call_soon_threadsafe(self._settle, answer, found)

    def _settle(self, answer: asyncio.Future[list[str]], found: _Found) -> None:
        self._free.release()
        if answer.done():
            return
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)


def _addresses(host: str) -> _Found:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError:
        return socket.gaierror(socket.EAI_NONAME, "no host can have such a name")
    return list(dict.fromkeys(str(address[0]) for *_, address in found))[:_MOST_ADDRESSES]
