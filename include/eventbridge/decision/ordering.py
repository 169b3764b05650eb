"""What may go of an ordered target: order keys and their shards, what a key waits for, leases. Pure.

Called by route (keys and shards), push (what may go), the planning of retries, and by what releases a rule on hold.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from eventbridge.model.partition import Partition
from eventbridge.model.place import Place, Span

#: Shards of an ordered target. Never another number: the ledger holds what it left pending.
SHARDS: Final = 16

#: The one key of a target with `errors_tolerance: none`, and that of events without a value to be ordered by.
SINGLE_KEY: Final = ""

#: Why a delivery was not sent: an earlier one of its key is open; events of its rule wait to be routed.
BLOCKED: Final = "blocked"
DEFERRED_MATCH_FIRST: Final = "deferred_match_first"

#: Why a pending row is on hold: behind its key; at a delivery that may not be dead-lettered; and what a person said to
#: it then.
BEHIND_ITS_KEY: Final = "order"
_ON_HOLD_AT: Final = "on hold at "
RELEASED: Final = "released"
SKIPPED: Final = "skipped"

#: Where a row says that its event lay.
PLACE_COLUMNS: Final = ["topic", "broker", "partition_id", "offset"]

#: How much longer than two time-outs a lease is taken for; so often it is renewed.
_LEASE_SECONDS: Final = 10.0


def place_of(row: Mapping[str, Any]) -> Place:
    """Return where the event of a row with PLACE_COLUMNS lay on its bus."""
    return Place(Partition(row["topic"], row["broker"], row["partition_id"]), row["offset"])


def shard_of(key: str) -> int:
    """Return the shard of an order key, 0 to 15; that of SINGLE_KEY is 0, and so are other keys'."""
    if key == SINGLE_KEY:
        return 0
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=4).digest()) % SHARDS


def spans_of(places: Iterable[Place]) -> tuple[Span, ...]:
    """Return the spans of some places, by partition."""
    found: dict[Partition, tuple[int, int]] = {}
    for partition, offset in places:
        first, last = found.get(partition, (offset, offset))
        found[partition] = min(first, offset), max(last, offset)
    return tuple(Span(partition, first, last) for partition, (first, last) in sorted(found.items()))


def may_block(waiting: Iterable[Span], going: Iterable[Span]) -> bool:
    """Return whether something that waits could lie before something that is to go; if not, it need not be read."""
    last = {span.partition: span.last for span in going}
    return any(span.partition in last and span.first < last[span.partition] for span in waiting)


class Open:
    """What is open of the deliveries of a target, beside those that are to go: it says which of these must wait.

    A delivery waits for an earlier one of its key in its partition, and for a `head` of its key in any partition: one
    that was tried, or is on hold, which is always the first of its key. Beyond that, order over partitions is not
    promised.
    """

    def __init__(self) -> None:
        self._first: dict[str, dict[Partition, int]] = defaultdict(dict)
        self._heads: dict[str, set[Partition]] = defaultdict(set)
        self._referred: dict[Partition, int] = {}
        self._closed: set[int] = set()

    def add(self, key: str, place: Place, *, head: bool) -> None:
        """Note an open delivery."""
        first = self._first[key]
        first[place.partition] = min(first.get(place.partition, place.offset), place.offset)
        if head:
            self._heads[key].add(place.partition)

    def add_deferred_match(self, place: Place) -> None:
        """Note the first event of a partition that is not routed yet: whatever its key is."""
        self._referred[place.partition] = min(self._referred.get(place.partition, place.offset), place.offset)

    def close_shard(self, shard: int) -> None:
        """Let nothing of a shard go: more is open than is worth reading, and all of it may be earlier."""
        self._closed.add(shard)

    def reason_to_wait(self, key: str, place: Place) -> str:
        """Return BLOCKED, DEFERRED_MATCH_FIRST, or "" for a delivery that may go after those before it in hand."""
        if self._referred.get(place.partition, place.offset) < place.offset:
            return DEFERRED_MATCH_FIRST
        if shard_of(key) in self._closed:
            return BLOCKED
        if self._first.get(key, {}).get(place.partition, place.offset) < place.offset:
            return BLOCKED
        return BLOCKED if self._heads.get(key, set()) - {place.partition} else ""


Each = TypeVar("Each", bound=Hashable)


class Turns(Generic[Each]):
    """Deliveries in hand, those of one key one after the other in bus order; other keys do not wait for it."""

    def __init__(self, deliveries: Iterable[tuple[str, Place, Each]]) -> None:
        self._waiting: dict[str, deque[Each]] = defaultdict(deque)
        for key, _, each in sorted(deliveries, key=lambda found: (found[0], found[1])):
            self._waiting[key].append(each)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def heads(self) -> Iterator[tuple[str, Each]]:
        """Yield each key with its next delivery."""
        for key, waiting in list(self._waiting.items()):
            yield key, waiting[0]

    def head(self, key: str) -> Each | None:
        """Return a key's next delivery, None if nothing is left of it."""
        return self._waiting[key][0] if key in self._waiting else None

    def next(self, key: str) -> None:
        """Take a key's next delivery out: it has its verdict, or can have none in this push."""
        self._waiting[key].popleft()
        if not self._waiting[key]:
            del self._waiting[key]

    def put_back(self, key: str, each: Each) -> None:
        """Replace a key's next delivery by itself as it is after an attempt: nothing of its key goes before it."""
        self._waiting[key][0] = each

    def close(self, key: str) -> list[Each]:
        """Take all that is left of a key out and return it, in order."""
        return list(self._waiting.pop(key, ()))


def lease_until(now: datetime, timeout_seconds: float) -> datetime:
    """Return until when a lease is taken: so that sends may start for 10 s, one time-out and the length of another."""
    return now + timedelta(seconds=2 * timeout_seconds + _LEASE_SECONDS)


def last_start(until: datetime, timeout_seconds: float) -> datetime:
    """Return when the last send under a lease may start: the lease outlasts its time-out."""
    return until - timedelta(seconds=timeout_seconds)


def is_due_for_renewal(until: datetime, now: datetime, timeout_seconds: float) -> bool:
    """Return whether a lease is too short for a send that starts now to be let run for its whole time-out."""
    return until - now < timedelta(seconds=2 * timeout_seconds + _LEASE_SECONDS / 2)


def on_hold_at(delivery_id: str) -> str:
    """Return why a row is on hold whose delivery may not be dead-lettered: it names it, so that a person can."""
    return _ON_HOLD_AT + delivery_id


def delivery_on_hold_at(held: str) -> str | None:
    """Return the id of the delivery that `on_hold_at` named, None if a row is on hold for another reason or none."""
    return held.removeprefix(_ON_HOLD_AT) if held.startswith(_ON_HOLD_AT) else None


def waits_for_order(held: str) -> bool:
    """Return whether a pending row is on hold, or marked, for the sake of order: nothing but order lets it go."""
    return held in (BEHIND_ITS_KEY, RELEASED, SKIPPED) or delivery_on_hold_at(held) is not None


def is_marked(held: str) -> bool:
    """Return whether a person has said what becomes of a delivery that its rule was on hold at."""
    return held in (RELEASED, SKIPPED)
