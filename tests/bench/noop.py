"""The cheapest job there is."""


async def noop() -> None:
    """Does nothing."""
