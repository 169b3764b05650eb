"""What the watchers and sensors of a triggerer want from buses, and what a poll has for them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from eventbridge.model.partition import Partition

if TYPE_CHECKING:
    from eventbridge.matching.pattern.nodes import Pattern

Offsets = dict[Partition, int]


@dataclass(eq=False)
class Subscription:
    """What one trigger wants from a bus, and how far it has read. Only the thread of the bus uses the lower fields.

    A watcher has `assets`; a sensor has none, and takes one event. `start_at` is where it begins if the ledger has no
    position of it.
    """

    bus: str
    pattern: Pattern | None
    assets: tuple[str, ...] = ()
    name: str = ""
    batch: int = 1
    start_at: str | datetime = "latest"
    owner: str = field(default_factory=lambda: uuid.uuid4().hex)
    is_closed: bool = False

    #: The next offset to read of each partition; None until the position is known.
    offsets: Offsets | None = None
    identities: Mapping[str, str] = field(default_factory=dict)
    sent: int = 0  # the number of the last asset event sent
    settled: tuple[int, Offsets] = (0, {})  # the number of the last recorded asset event, and the position after it
    in_flight: int = 0  # polls with asset events that Airflow has not confirmed
    is_broken: bool = False  # Airflow may not have recorded some asset events, so the position is read again
    begin_at: float = 0.0
    recorded_at: float = float("-inf")  # when Airflow confirmed the last asset event
    wake_at: float | None = None  # when to check whether the scheduler has passed over an asset event
    wake_pause: float = 0.0
    last_warning: str = ""

    @property
    def takes_one_at_a_time(self) -> bool:
        """Whether the next asset event waits until Airflow has recorded the last one, so that more events are in it."""
        return self.batch > 1 or not self.assets


#: The open subscriptions of this process by bus, the oldest first.
_subscriptions: dict[str, list[Subscription]] = defaultdict(list)


@contextmanager
def subscribed(subscription: Subscription) -> Iterator[Subscription]:
    """Hand the events of a bus to a subscription until the end of the block."""
    _subscriptions[subscription.bus].append(subscription)
    try:
        yield subscription
    finally:
        subscription.is_closed = True
        _subscriptions[subscription.bus].remove(subscription)


def subscriptions_of(bus: str) -> list[Subscription]:
    """Return the open subscriptions of a bus, the oldest first."""
    return [each for each in list(_subscriptions[bus]) if not each.is_closed]


@dataclass(eq=False)
class Poll:
    """The result of one poll: the payloads of asset events by subscription, and the positions after them."""

    payloads: Mapping[Subscription, Sequence[dict[str, Any]]]
    after: Mapping[Subscription, tuple[int, Offsets]]
    taken: set[Subscription] = field(default_factory=set)

    @property
    def count(self) -> int:
        """The number of asset events."""
        return sum(map(len, self.payloads.values()))

    def take(self, subscription: Subscription) -> Sequence[dict[str, Any]]:
        """Return the payloads for a subscription, which will report them all."""
        self.taken.add(subscription)
        return self.payloads.get(subscription, ())
