"""Decides how long a batch in streaming mode stays open, and how often its responses are recorded."""

from __future__ import annotations

from typing import Final

#: Traffic is low with fewer events or responses a second than this.
LITTLE: Final = 10.0
#: With low traffic, a batch stays open and a segment grows so many times as long; a batch at most so many seconds.
_BATCHES, _MOST_BATCH_SECONDS = 6.0, 60.0
#: The longest time of a segment, even if its usual time is longer, as in a bucket: a crash repeats a segment.
_SEGMENTS, _MOST_SEGMENT_SECONDS = 5.0, 5.0
#: The write begins after this share of the time, because detecting that it is due and writing take the rest.
_BEGUN: Final = 0.8
#: How long to wait between two polls of the bus: a poll costs about as much for one event as for ten.
_LOOK_SECONDS: Final = 0.003
#: After a poll with so many events, a later poll may return more at once; after one with so many, more already wait.
_SOME, _SOME_LOOK_SECONDS, _MANY = 16, 0.008, 100
#: The bus counts as idle after this time without events.
_QUIET_SECONDS, _QUIET_LOOK_SECONDS = 5.0, 0.008

#: How long after the last poll the next one is made if the bus notifies of new events.
UNANNOUNCED_SECONDS: Final = 0.05


def batch_is_over(age: float, events: int, usual: float, *, waits: bool = False) -> bool:
    """Return whether to close a batch of `events` events, `age` seconds after the first.

    `waits`: some of them are sent only when it closes.
    """
    if age < usual:
        return False
    return waits or events >= LITTLE * age or age >= max(usual, min(_BATCHES * usual, _MOST_BATCH_SECONDS))


def segment_is_due(age: float, responses: int, usual: float, most: int) -> bool:
    """Return whether to record the responses, `age` seconds after the last record was begun."""
    if not responses:
        return False
    if responses >= most:
        return True
    seconds = usual if responses >= LITTLE * age else _SEGMENTS * usual
    return age >= _BEGUN * min(seconds, _MOST_SEGMENT_SECONDS)


def look_seconds(found: int, since: float) -> float:
    """Return how many seconds to wait before the next poll of the bus.

    `found`: the events of the last poll; `since`: the seconds since a poll last found any.
    """
    if found >= _MANY:
        return 0.0
    if found >= _SOME:
        return _SOME_LOOK_SECONDS
    return _LOOK_SECONDS if since < _QUIET_SECONDS else _QUIET_LOOK_SECONDS
