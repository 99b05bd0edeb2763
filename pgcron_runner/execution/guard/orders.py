"""What the guard is asked to launch: both ends put it into the same fields."""

from __future__ import annotations


class Order:
    """A command with all that the guard needs to start it; `None` and empty fields leave a thing as it is.

    `user` is a user id, a group id and further group ids. `memory_limit` is in bytes, for the whole tree.
    """

    __slots__ = ("argv", "env", "folder", "memory_limit", "number", "umask", "user")

    def __init__(
        self,
        number: int,
        argv: list[bytes],
        env: list[bytes],
        *,
        folder: bytes = b"",
        umask: int | None = None,
        user: tuple[int, ...] = (),
        memory_limit: int = 0,
    ) -> None:
        self.number = number
        self.argv = argv
        self.env = env
        self.folder = folder
        self.umask = umask
        self.user = user
        self.memory_limit = memory_limit

    def fields(self) -> list[bytes | int]:
        """As they follow the word `launch`."""
        umask = b"" if self.umask is None else b"%o" % self.umask
        user = b",".join(b"%d" % number for number in self.user)
        return [self.number, self.folder, umask, user, self.memory_limit, len(self.argv), *self.argv, *self.env]

    @classmethod
    def parse(cls, fields: list[bytes]) -> Order:
        """The order that `fields` was made of."""
        number, folder, umask, user, memory_limit, count, *rest = fields
        return cls(
            int(number),
            rest[: int(count)],
            rest[int(count) :],
            folder=folder,
            umask=int(umask, 8) if umask else None,
            user=tuple(int(part) for part in user.split(b",") if part),
            memory_limit=int(memory_limit),
        )
