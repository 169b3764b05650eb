"""Defines the deliveries of queues: those that wait for a consumer, those that one has received, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

#: The reason of a delivery that is pending because it waits in a queue for a consumer.
IN_QUEUE: Final = "in_queue"
#: The error classes of an attempt that a consumer did not acknowledge: its visibility timeout ended, or it released the
#: delivery.
VISIBILITY_EXPIRED: Final = "VisibilityExpired"
RELEASED: Final = "Released"
#: The reasons of deliveries that are in a queue, however often they were received.
QUEUE_REASONS: Final = (IN_QUEUE, VISIBILITY_EXPIRED, RELEASED)

#: How long a delivery may stay invisible after it was received, with all extensions.
MAX_VISIBILITY: Final = timedelta(hours=12)
#: The maximum number of deliveries in one call.
MAX_COUNT: Final = 1_000

#: `ready`: can be received at `visible_at`. `blocked`: waits for an earlier delivery of its key. `received`: a consumer
#: has it until `visible_at`. `acknowledged`, `dead`: finished, and not settled yet. `settled`: its status is final.
QueueState = Literal["ready", "blocked", "received", "acknowledged", "dead", "settled"]


class EndedAttempt(NamedTuple):
    """An attempt that a consumer did not acknowledge; `error` is what the consumer said."""

    number: int
    started_at: datetime
    ended_at: datetime
    error_class: str
    error: str


@dataclass(frozen=True)
class QueueEntry:
    """A delivery that a push puts into its queue; `order_key` is a hash, None if the target is not ordered."""

    delivery_id: str
    rule: str
    target: str
    attempts: int
    expires_at: datetime
    payload: bytes
    content_type: str
    headers: dict[str, str]
    order_key: str | None = None


@dataclass(frozen=True)
class QueuedDelivery:
    """The state of a delivery in its queue.

    `attempts` includes the attempt of the consumer that has it. `reason` and `detail` say why it is `dead`.
    """

    number: int
    delivery_id: str
    rule: str
    target: str
    state: QueueState
    visible_at: datetime
    receipt: str | None
    received_at: datetime | None
    attempts: int
    ended: tuple[EndedAttempt, ...]
    finished_at: datetime | None
    reason: str | None
    detail: str | None
    order_key: str | None

    def is_received(self, now: datetime) -> bool:
        """Return whether a consumer has the delivery."""
        return self.state == "received" and self.visible_at > now


class ReceivedDelivery(NamedTuple):
    """A delivery as a consumer receives it; `receipt` proves that this consumer has it until `visible_until`."""

    receipt: str
    delivery_id: str
    rule: str
    target: str
    attempt: int
    visible_until: datetime
    content_type: str
    headers: dict[str, str]
    payload: bytes


class AttemptEnd(NamedTuple):
    """The end of an attempt that was not acknowledged: when the delivery is visible again, or why it is dead."""

    delivery: QueuedDelivery
    attempt: EndedAttempt
    visible_at: datetime
    dead: tuple[str, str] | None = None  # reason and detail


@dataclass(frozen=True)
class QueueCount:
    """The number of a target's deliveries in one state of its queue, and when the first of them is or was visible."""

    rule: str
    target: str
    state: QueueState | Literal["delayed"]
    count: int
    first_at: datetime
