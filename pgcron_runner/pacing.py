"""When a message may go to a channel, and how much goes into it: quiet hours, digests, storms. It knows no message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

# So many alerts are so many messages; more of them are one.
_MOST_SINGLE = 3
_MOST_IN_A_DIGEST = 2_000
# A channel that gets so many messages a minute is about to be muted by those who read it.
_MOST_A_MINUTE = 5
_STORM_PAUSE = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What waits for a channel, and how the channel wants it.

    `count`: alerts that are due; `due_in`: seconds until the first of all is; `now`: the database's time.
    """

    count: int
    due_in: float
    sent_in_last_minute: int
    now: datetime
    timezone: str | None = None
    quiet_from: time | None = None
    quiet_until: time | None = None
    digest_every: timedelta | None = None
    told_at: datetime | None = None


def message_in(waiting: Waiting) -> float:
    """Seconds until a message may go; 0.0: now."""
    if waiting.count == 0:
        return max(waiting.due_in, 0.0)
    pauses = [_quiet(waiting), _until_next_digest(waiting)]
    if waiting.sent_in_last_minute >= _MOST_A_MINUTE:
        pauses.append(_STORM_PAUSE)
    return max(pauses)


def alerts_in_message(waiting: Waiting) -> int:
    """How many alerts the next message takes at most."""
    is_digest = waiting.digest_every is not None or waiting.count > _MOST_SINGLE
    return _MOST_IN_A_DIGEST if is_digest else 1


def _quiet(waiting: Waiting) -> float:
    """Until the quiet hours are over, which may go past midnight; 0.0 outside of them."""
    begin, end = waiting.quiet_from, waiting.quiet_until
    if begin is None or end is None or begin == end or waiting.timezone is None:
        return 0.0
    local = waiting.now.astimezone(ZoneInfo(waiting.timezone))
    clock = local.time()
    quiet = begin <= clock < end if begin < end else clock >= begin or clock < end
    if not quiet:
        return 0.0
    day = local.date() if clock < end else local.date() + timedelta(days=1)
    over = datetime.combine(day, end, tzinfo=ZoneInfo(waiting.timezone))
    return max((over - waiting.now).total_seconds(), 1.0)


def _until_next_digest(waiting: Waiting) -> float:
    if waiting.digest_every is None or waiting.told_at is None:
        return 0.0
    return max((waiting.told_at + waiting.digest_every - waiting.now).total_seconds(), 0.0)
