"""Defines the protocols of targets, which deliver requests, yield each response as it arrives, and flush buffers."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import pyarrow as pa

from eventbridge.event.ids import delivery_id_text
from eventbridge.model.outcome import Response


@dataclass(slots=True)  # not frozen, because creating one would take four times as long
class Request:
    """One delivery as a target receives it; `index` is the caller's number, returned with the response.

    Treat it as immutable.
    """

    index: int
    delivery_id: str  # a UUID as a string
    payload: bytes
    content_type: str  # empty if there is none
    headers: Mapping[str, str] = field(default_factory=dict)
    order_key: str | None = None


class Target(Protocol):
    """A destination of deliveries.

    A target belongs to one push task and one thread; a process may have several.
    """

    #: The maximum number of responses before a `flush`; 1 if an accepted delivery is already durable.
    flush_every: int
    #: The number of further requests to which the last response also applies. `deliver` yields them next, without
    #: waiting; a caller that closes the generator first loses them. 0 if each request has its own response.
    more_of_response: int

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Send every request and yield (index, response) once for each that was started, as responses arrive.

        Starts nothing after the aware time `until` and ends soon after it. Requests then in flight are abandoned and
        yielded with `error_class="Interrupted"`; requests that were never started are not yielded. Never raises for the
        failure of one request. Closing the generator abandons requests in flight.

        A target that sends several requests together (a batch request) may leave some of them without a response
        although it sent them, because the target rejected others of their batch request. These are unjudged deliveries.
        Callers pass them to a later `deliver`, like requests that were never started. This ends, because each `deliver`
        yields a response for at least one of them, or the next one sends them in smaller batch requests. To look ahead,
        such a target reads requests by index; it iterates only over those that it sends.
        """

    def flush(self) -> None:
        """Return once every request with a response is durable at the target.

        Deliveries are settled only by flushed responses. Raises InfrastructureError on failure.
        """

    def close(self) -> None:
        """Close connections and files."""


@runtime_checkable
class BlockTarget(Target, Protocol):
    """A target that accepts thousands of payloads as one Arrow array, and acknowledges them by index."""

    def deliver_block(
        self, delivery_ids: pa.Array, payloads: pa.Array, until: datetime
    ) -> Generator[tuple[int, Response], None, None]:
        """Send payloads, an Arrow array of binaries, in their order, and yield (acknowledge index, response).

        `delivery_ids` are the ids, 16 bytes each. The response applies to every payload before the index that had none
        yet. As in `deliver`, nothing is started after `until`; payloads at or after the last yielded index were not
        sent. A target may leave payloads to `deliver`, from any index on. A null is an empty payload.
        """


class DeliverySpan(NamedTuple):
    """Deliveries that are sent as a whole and get one response, under a name that always means the same deliveries.

    `delivery_ids` (16 bytes each) and `payloads` are Arrow arrays of binaries, in the same order. `at` is the aware
    time at which their batch was planned.
    """

    name: str
    at: datetime
    delivery_ids: pa.Array
    payloads: pa.Array

    def rows(self) -> Iterator[tuple[str, bytes]]:
        """Yield the deliveries, each as its id, a UUID as a string, and its payload."""
        for delivery_id, payload in zip(self.delivery_ids.to_pylist(), self.payloads.to_pylist(), strict=True):
            yield delivery_id_text(delivery_id), payload or b""


class SpanResponse(NamedTuple):
    """The response to a span. If it is accepted, `rejected` has those to deliveries that were not stored, by id.

    If it is not accepted, `stored` has those to deliveries that were stored nevertheless. They are delivered if the
    span is dead-lettered; if it is tried again, it is tried as a whole.
    """

    response: Response
    rejected: Mapping[bytes, Response]
    stored: Mapping[bytes, Response] = MappingProxyType({})


@runtime_checkable
class SpanTarget(Target, Protocol):
    """A target that stores a span as a whole under its name, replacing an earlier one or keeping it."""

    def deliver_span(self, span: DeliverySpan, until: datetime) -> SpanResponse | None:
        """Send a span and return the response to it; None if `until` passed before all of it was sent."""


class SharingTarget(Target, Protocol):
    """A target whose `flush` waits for a disk and can be combined with the flushes of other targets on that disk."""

    @property
    def disk(self) -> Hashable | None:
        """Return the disk that `flush` would wait for, or None; targets with the same `disk` are of the same type."""

    @staticmethod
    def flush_together(targets: Sequence[Any]) -> list[str | None]:
        """Flush targets with the same `disk`; return for each the error if its deliveries may be lost, else None."""


@runtime_checkable
class Checkable(Protocol):
    """A target that can be checked without a delivery."""

    def check(self) -> str | None:
        """Return why deliveries would fail, or None; sends nothing, and takes no longer than an attempt."""


class Maintainable(Protocol):
    """A target that keeps what it wrote in good order, if its rule says so."""

    def maintain(self, every: timedelta) -> bool:
        """Do the upkeep if it was last done longer than `every` ago, and return whether it was done.

        Raises InfrastructureError if it fails; it is done again at the next call.
        """


def takes_blocks(target: Target) -> TypeGuard[BlockTarget]:
    """Return whether a target takes blocks."""
    # isinstance of a runtime-checkable protocol takes 0.3 ms, as much as a sync
    return hasattr(target, "deliver_block")


def shares_flush(target: Target) -> TypeGuard[SharingTarget]:
    """Return whether a target can be flushed together with others."""
    return hasattr(target, "flush_together")
