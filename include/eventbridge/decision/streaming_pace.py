"""How long a batch in streaming mode is open, and how often its responses are recorded: seldom if little comes."""

from __future__ import annotations

from typing import Final

#: With fewer events or responses a second than this, little comes.
LITTLE: Final = 10.0
#: Where little comes, a batch is open and a segment grows so many times as long; an open batch at most so many seconds.
_BATCHES, _MOST_BATCH_SECONDS = 6.0, 60.0
#: A segment grows so long at most, also where its usual time is longer, as in a bucket: it is what a crash repeats.
_SEGMENTS, _MOST_SEGMENT_SECONDS = 5.0, 5.0
#: After this share of its time it is begun, as to write it, and to see that it is due, takes some of that.
_BEGUN: Final = 0.8
#: How long to wait between two looks at the bus: a look costs about as much for one event as for ten.
_LOOK_SECONDS: Final = 0.003
#: Where a look found so many events it may bring more at a time; where it found so many, more wait already.
_SOME, _SOME_LOOK_SECONDS, _MANY = 16, 0.008, 100
#: Where nothing has come for so long.
_QUIET_SECONDS, _QUIET_LOOK_SECONDS = 5.0, 0.008

#: How long after the last look the next one is made of a bus that tells when something comes.
UNANNOUNCED_SECONDS: Final = 0.05


def batch_is_over(age: float, events: int, usual: float, *, waits: bool = False) -> bool:
    """Return whether a batch is to be closed, `age` seconds after its first of so many events.

    `waits`: some of them are sent by its close.
    """
    if age < usual:
        return False
    return waits or events >= LITTLE * age or age >= max(usual, min(_BATCHES * usual, _MOST_BATCH_SECONDS))


def segment_is_due(age: float, responses: int, usual: float, most: int) -> bool:
    """Return whether so many responses are to be recorded, `age` seconds after the last record was begun."""
    if not responses:
        return False
    if responses >= most:
        return True
    seconds = usual if responses >= LITTLE * age else _SEGMENTS * usual
    return age >= _BEGUN * min(seconds, _MOST_SEGMENT_SECONDS)


def look_seconds(found: int, since: float) -> float:
    """Return how long to wait before the next look at the bus.

    The last one found so many events; `since` it last found any so many seconds have passed.
    """
    if found >= _MANY:
        return 0.0
    if found >= _SOME:
        return _SOME_LOOK_SECONDS
    return _LOOK_SECONDS if since < _QUIET_SECONDS else _QUIET_LOOK_SECONDS
