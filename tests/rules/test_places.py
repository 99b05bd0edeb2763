"""Places: how many channels may send at once, and that bad ones do not keep good ones waiting."""

from __future__ import annotations

from pgcron_runner.places import Places


def taken(places: Places, channels: range, now: float) -> list[int]:
    return [channel for channel in channels if places.take(channel, now)]


def test_a_channel_sends_one_message_at_a_time() -> None:
    places = Places()
    assert places.take(1, 0.0)
    assert not places.take(1, 9.0)
    places.give_back(1, taken=True)
    assert places.take(1, 9.0)


def test_a_message_that_takes_long_gives_its_place_to_another() -> None:
    places = Places()
    assert taken(places, range(20), 0.0) == list(range(8))
    assert taken(places, range(20), 0.4) == []
    assert taken(places, range(20), 0.6) == list(range(8, 16))


def test_there_is_a_bound_however_many_are_slow() -> None:
    places = Places()
    assert len([channel for second in range(100) for channel in taken(places, range(100), float(second))]) == 32


def test_channels_that_failed_have_places_of_their_own() -> None:
    places = Places()
    for channel in range(10):
        assert places.take(channel, float(channel))
        places.give_back(channel, taken=False)
    assert taken(places, range(10), 10.0) == [0, 1, 2, 3]
    assert taken(places, range(10, 30), 10.0) == list(range(10, 18))
    places.give_back(0, taken=True)
    places.give_back(10, taken=True)
    assert places.take(0, 10.0)
    assert taken(places, range(1, 10), 10.0) == [4]
