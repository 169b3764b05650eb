"""What a target must offer: deliver a batch, responding per item as responses come, and flush what it buffers."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import pyarrow as pa

from eventbridge.model.response import Response


@dataclass(slots=True)  # not frozen: to make one would take four times as long
class Request:
    """One delivery as a target sees it; `index` is the caller's own number for it, given back with the response.

    Nobody changes one.
    """

    index: int
    delivery_id: str  # UUID text
    payload: bytes
    content_type: str  # "": none
    headers: Mapping[str, str] = field(default_factory=dict)
    order_key: str | None = None


class Target(Protocol):
    """Where deliveries go.

    A target belongs to one push task and one thread; several live in one process.
    """

    #: How many responses may wait for one `flush`: 1 where a response is durable by itself.
    flush_every: int
    #: For how many more requests the response that came last holds: they come next, at once; a caller that closes
    #: the generator before that loses them. 0 where each request has a response of its own.
    more_of_response: int

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Send every request and yield (index, response) once for each that was started, as responses come.

        Starts nothing after the aware time `until` and ends soon after it:
        what is in flight then is given up and yielded as a response with `error_class="Interrupted"`, what was
        never started is not yielded. Never raises for what one request meets on its way.
        Closing the generator gives up what is in flight.

        A target that sends several requests together (a batch request) may leave some of them without a response
        although it sent them: those that nobody has judged, because others of their batch request were in the way. They
        come again in a later `deliver`, as what was never started does. Each `deliver` responds to one of them, or
        sends them in smaller batch requests the next time, so that this ends. It looks ahead by index, and takes by
        iterating only what it sends.
        """

    def flush(self) -> None:
        """Return once everything responded to so far is durable at the target.

        A verdict is only taken from responses that were flushed. Raises InfrastructureError if it cannot be.
        """

    def close(self) -> None:
        """Let go of connections and files."""


@runtime_checkable
class BlockTarget(Target, Protocol):
    """A target that takes payloads by the thousand, where they lie, and responses by how far it got."""

    def deliver_block(self, payloads: pa.Array, until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Send payloads, an Arrow array of binaries, in their order, and yield (acknowledge index, response).

        The response is that to each payload before the index that had none yet. As for `deliver`, nothing is started
        after `until`: payloads from the last index on were not sent. A null is a payload of no bytes.
        """


class DeliverySpan(NamedTuple):
    """Deliveries that are sent and responded to as a whole, with a name that always stands for the same ones.

    `delivery_ids` has 16 bytes for each, `payloads` its bytes; both are Arrow arrays. `at`, an aware time, is when
    their batch was planned.
    """

    name: str
    at: datetime
    delivery_ids: pa.Array
    payloads: pa.Array


@runtime_checkable
class SpanTarget(Target, Protocol):
    """A target that takes a span as one thing under its name, in place of what it has under that name."""

    def deliver_span(self, span: DeliverySpan, until: datetime) -> Response | None:
        """Send a span and return the one response to all of it; None: it is `until`, and nothing was sent."""


class SharingTarget(Target, Protocol):
    """A target whose `flush` waits for a disk, and can be made together with those of other targets of that disk."""

    @property
    def disk(self) -> Hashable | None:
        """What `flush` would wait for, None: nothing; all targets with one `disk` are of one type."""

    @staticmethod
    def flush_together(targets: Sequence[Any]) -> list[str | None]:
        """Do as `flush` does for targets with one `disk`; return for each what was lost, None: nothing."""


@runtime_checkable
class Checkable(Protocol):
    """A target that can be tried without a delivery."""

    def check(self) -> str | None:
        """Return what keeps deliveries from the target, None: nothing; sends none. Takes no longer than an attempt."""


def takes_blocks(target: Target) -> TypeGuard[BlockTarget]:
    """Return whether a target takes blocks."""
    return hasattr(target, "deliver_block")  # to ask a runtime-checkable protocol takes 0.3 ms, as much as a sync


def shares_flush(target: Target) -> TypeGuard[SharingTarget]:
    """Return whether a target can be flushed together with others."""
    return hasattr(target, "flush_together")
