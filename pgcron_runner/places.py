"""Who may send now: channels that do not answer must not keep others waiting. It knows no message and no clock."""

from __future__ import annotations

# A message that takes longer gives its place to another one; it goes on in a place that is for slow ones.
PATIENCE = 0.5
_QUICK = 8
_SLOW = 24
# Channels that took nothing last time: a few places are theirs, and no others.
_DOUBTFUL = 4


class Places:
    """Places for messages that are on their way, at most one a channel. `now`: seconds of one steady clock."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._failed: set[int] = set()

    def take(self, channel_id: int, now: float) -> bool:
        """Whether the channel may send now: then it has a place, until it gives it back."""
        if channel_id in self._since or not self._has_room(channel_id, now):
            return False
        self._since[channel_id] = now
        return True

    def give_back(self, channel_id: int, *, taken: bool | None = None) -> None:
        """The message is over; whether the channel has taken it. None: nothing was sent."""
        del self._since[channel_id]
        if taken is not None:
            (self._failed.discard if taken else self._failed.add)(channel_id)

    def _has_room(self, channel_id: int, now: float) -> bool:
        if channel_id in self._failed:
            return len(self._since.keys() & self._failed) < _DOUBTFUL
        trusted = [since for channel, since in self._since.items() if channel not in self._failed]
        quick = sum(since > now - PATIENCE for since in trusted)
        return quick < _QUICK and len(trusted) < _QUICK + _SLOW
