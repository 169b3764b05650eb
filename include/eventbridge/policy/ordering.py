"""Decides which deliveries of an ordered target may be sent: order keys and shards, waits, leases.

Called by route (keys and shards), push (what may be sent), the planning of retries, and the release of a rule on hold.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from eventbridge.model.partition import Partition, Position, Span

#: The number of shards of an ordered target. It must never change, because pending rows in the ledger depend on it.
SHARDS: Final = 16

#: The only key of a target with `errors_tolerance: none`, and the key of events without an ordering value.
SINGLE_KEY: Final = ""

#: The reasons why a delivery was not sent: an earlier delivery of its key is open, or earlier events of its rule are
#: still waiting to be routed.
BLOCKED: Final = "blocked"
DEFERRED_MATCH_FIRST: Final = "deferred_match_first"

#: The hold reasons of pending rows. An earlier delivery of the key is open; or the delivery failed for good but must
#: not be dead-lettered. The last two mark an operator's decision about such a delivery.
BEHIND_ITS_KEY: Final = "order"
_ON_HOLD_AT: Final = "on hold at "
RELEASED: Final = "released"
SKIPPED: Final = "skipped"

#: The columns of a row that hold the position of its event.
POSITION_COLUMNS: Final = ["topic", "broker", "partition_id", "offset"]

#: A lease lasts this many seconds longer than two timeouts. It is renewed once only half of this remains beyond two
#: timeouts.
_LEASE_SECONDS: Final = 10.0


def position_of(row: Mapping[str, Any]) -> Position:
    """Return the bus position of a row's event; the row has the POSITION_COLUMNS."""
    return Position(Partition(row["topic"], row["broker"], row["partition_id"]), row["offset"])


def shard_of(key: str) -> int:
    """Return the shard of an order key, 0 to 15. SINGLE_KEY is in shard 0, together with other keys."""
    if key == SINGLE_KEY:
        return 0
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=4).digest()) % SHARDS


def spans_of(positions: Iterable[Position]) -> tuple[Span, ...]:
    """Return the span of the positions in each partition, sorted by partition."""
    found: dict[Partition, tuple[int, int]] = {}
    for partition, offset in positions:
        first, last = found.get(partition, (offset, offset))
        found[partition] = min(first, offset), max(last, offset)
    return tuple(Span(partition, first, last) for partition, (first, last) in sorted(found.items()))


def may_block(waiting: Iterable[Span], going: Iterable[Span]) -> bool:
    """Return whether a waiting delivery could precede one to be sent. If not, the waiting ones need not be read."""
    last = {span.partition: span.last for span in going}
    return any(span.partition in last and span.first < last[span.partition] for span in waiting)


class Open:
    """The other open deliveries of a target; decides whether a delivery to be sent must wait for them.

    A delivery waits for an earlier one of its key in its own partition, and for a `head` of its key in any other. A
    head is the first delivery of its key that was tried or is on hold. Beyond that, order across partitions is not
    guaranteed.
    """

    def __init__(self) -> None:
        self._first: dict[str, dict[Partition, int]] = defaultdict(dict)
        self._heads: dict[str, set[Partition]] = defaultdict(set)
        self._unrouted: dict[Partition, int] = {}
        self._closed: set[int] = set()

    def add(self, key: str, position: Position, *, head: bool) -> None:
        """Add an open delivery."""
        first = self._first[key]
        first[position.partition] = min(first.get(position.partition, position.offset), position.offset)
        if head:
            self._heads[key].add(position.partition)

    def add_deferred_match(self, position: Position) -> None:
        """Add the position of an event that is not routed yet.

        Its key is unknown, so all later deliveries of the partition wait.
        """
        self._unrouted[position.partition] = min(
            self._unrouted.get(position.partition, position.offset), position.offset
        )

    def close_shard(self, shard: int) -> None:
        """Block a shard that has too many open deliveries to read, because any of them may be earlier."""
        self._closed.add(shard)

    def reason_to_wait(self, key: str, position: Position) -> str:
        """Return BLOCKED or DEFERRED_MATCH_FIRST if a delivery must wait for another open one, else ""."""
        if self._unrouted.get(position.partition, position.offset) < position.offset:
            return DEFERRED_MATCH_FIRST
        if shard_of(key) in self._closed:
            return BLOCKED
        if self._first.get(key, {}).get(position.partition, position.offset) < position.offset:
            return BLOCKED
        return BLOCKED if self._heads.get(key, set()) - {position.partition} else ""


Each = TypeVar("Each", bound=Hashable)


class DeliveriesByKey(Generic[Each]):
    """The deliveries of a push by key.

    Those of one key are sent one after the other in bus order; other keys do not wait.
    """

    def __init__(self, deliveries: Iterable[tuple[str, Position, Each]]) -> None:
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
        """Return a key's next delivery; None if it has no more."""
        return self._waiting[key][0] if key in self._waiting else None

    def next(self, key: str) -> None:
        """Remove a key's next delivery, which is settled or cannot be settled in this push."""
        self._waiting[key].popleft()
        if not self._waiting[key]:
            del self._waiting[key]

    def put_back(self, key: str, delivery: Each) -> None:
        """Replace a key's next delivery with its state after an attempt; it stays the first of its key."""
        self._waiting[key][0] = delivery

    def close(self, key: str) -> list[Each]:
        """Remove the remaining deliveries of a key and return them in order."""
        return list(self._waiting.pop(key, ()))


def lease_until(now: datetime, timeout_seconds: float) -> datetime:
    """Return the end of a lease: sends may start for 10 s and one timeout, and each may last another timeout."""
    return now + timedelta(seconds=2 * timeout_seconds + _LEASE_SECONDS)


def last_start(until: datetime, timeout_seconds: float) -> datetime:
    """Return when the last send under a lease may start, so that the lease outlasts its timeout."""
    return until - timedelta(seconds=timeout_seconds)


def is_due_for_renewal(until: datetime, now: datetime, timeout_seconds: float) -> bool:
    """Return whether to renew a lease before a send, because less than two timeouts and 5 s of it are left."""
    return until - now < timedelta(seconds=2 * timeout_seconds + _LEASE_SECONDS / 2)


def on_hold_at(delivery_id: str) -> str:
    """Return the hold reason for a failed delivery that must not be dead-lettered; it contains the delivery id."""
    return _ON_HOLD_AT + delivery_id


def delivery_on_hold_at(hold_reason: str) -> str | None:
    """Return the delivery id in a hold reason made by `on_hold_at`; None for any other hold reason or none."""
    return hold_reason.removeprefix(_ON_HOLD_AT) if hold_reason.startswith(_ON_HOLD_AT) else None


def waits_for_order(hold_reason: str) -> bool:
    """Return whether a pending row is on hold or marked because of its order; only code for ordering may release it."""
    return hold_reason in (BEHIND_ITS_KEY, RELEASED, SKIPPED) or delivery_on_hold_at(hold_reason) is not None


def is_marked(hold_reason: str) -> bool:
    """Return whether an operator has decided about the delivery that blocked its rule."""
    return hold_reason in (RELEASED, SKIPPED)
