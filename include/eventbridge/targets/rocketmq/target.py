"""Implements the RocketMQ target, which sends each delivery as a message and waits for its acknowledgement."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import Final, NamedTuple
from urllib.parse import unquote

from eventbridge.clients.rocketmq.remoting import codes
from eventbridge.clients.rocketmq.remoting.client import Client
from eventbridge.clients.rocketmq.remoting.connection import Connection
from eventbridge.clients.rocketmq.remoting.errors import (
    HostUnknown,
    NoRoute,
    Refused,
    RemotingError,
    TimedOut,
    TlsFailed,
    Unreachable,
)
from eventbridge.clients.rocketmq.remoting.messages import OutgoingMessage
from eventbridge.clients.rocketmq.remoting.queues import TopicQueue, queue_of_key
from eventbridge.clients.rocketmq.remoting.sending import send_request
from eventbridge.clients.rocketmq.remoting.settings import ClientSettings
from eventbridge.clients.rocketmq.settings import as_bus_errors, client_settings
from eventbridge.errors import BusError
from eventbridge.fault_points import reach
from eventbridge.model.outcome import Response
from eventbridge.targets.open import TargetSetup
from eventbridge.targets.protocol import Request
from eventbridge.targets.rocketmq.fields import RocketmqFields

#: The maximum time that one call waits for results; it blocks the sending thread.
_WAIT_SECONDS: Final = 0.05
_INTERRUPTED: Final = "the push ended before the response came"


class RocketmqTarget:
    """Sends to one topic, with one tag or none, at most `max_in_flight` messages at a time.

    A message's key is its delivery id. An ordered delivery is sent to the queue of its order key; the caller must
    have at most one message per order key in flight. `settings` include the timeout of a delivery.
    """

    flush_every = 1
    more_of_response = 0

    def __init__(
        self,
        settings: ClientSettings,
        topic_and_tag: tuple[str, str],
        *,
        max_in_flight: int,
        clock: Callable[[], datetime],
    ) -> None:
        self._servers = ",".join(settings.name_servers)
        self._topic, self._tag = topic_and_tag
        self._lines = SendConnections(settings, self._topic)
        self._max_in_flight = max_in_flight
        self._clock = clock
        self._in_flight: dict[int, datetime] = {}  # send times, by index

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Send every request, see `protocol.Target`; a response is the broker's acknowledgement of that message."""
        waiting = iter(requests)
        try:
            more = True
            while more or self._in_flight:
                if more and len(self._in_flight) < self._max_in_flight:
                    more = yield from self._fill(waiting, until)
                if self._in_flight:
                    yield from self._responses()
                if self._clock() >= until:
                    break
            yield from self._interrupted()
        finally:
            if self._in_flight:
                self._drop()

    def flush(self) -> None:
        """Return immediately, because an acknowledged message is as durable as the broker's settings make it."""

    def check(self) -> str | None:
        """Return why the topic cannot be written to (name servers, brokers, login or topic), or None if it can."""
        try:
            with as_bus_errors(self._servers, f"cannot look up the topic {self._topic!r}"):
                self._lines.client.greet(self._topic)
        except BusError as error:
            return str(error)
        return None

    def close(self) -> None:
        """Close the connections to name servers and brokers."""
        self._drop()
        self._lines.client.close()

    def _fill(self, waiting: Iterator[Request], until: datetime) -> Generator[tuple[int, Response], None, bool]:
        """Send while there is capacity and time; return whether there may be more to send."""
        while len(self._in_flight) < self._max_in_flight:
            if self._clock() >= until:
                return False
            request = next(waiting, None)
            if request is None:
                return False
            reach("target.send")
            self._in_flight[request.index] = self._clock()
            try:
                self._lines.send(request.index, message_of(request, self._tag), request.order_key)
            except RemotingError as error:
                yield self._response_to(request.index, error)
        return True

    def _responses(self) -> Iterator[tuple[int, Response]]:
        for index, error in self._lines.results(_WAIT_SECONDS):
            yield self._response_to(index, error)

    def _response_to(self, index: int, error: RemotingError | None) -> tuple[int, Response]:
        started_at = self._in_flight.pop(index)
        reach("target.responded")
        if error is None:
            return index, Response(True, started_at, self._elapsed_ms(started_at))
        reason = " ".join(str(error).split())[:300]
        return index, Response(
            False, started_at, self._elapsed_ms(started_at), error_class=error_class(error), error=reason
        )

    def _interrupted(self) -> Iterator[tuple[int, Response]]:
        """Abandon the messages in flight, and yield their responses."""
        given_up = dict(self._in_flight)
        if given_up:
            self._drop()
        for index, started_at in given_up.items():
            duration_ms = self._elapsed_ms(started_at)
            yield (
                index,
                Response(False, started_at, duration_ms, error_class="Interrupted", error=_INTERRUPTED),
            )

    def _elapsed_ms(self, started_at: datetime) -> float:
        return max(0.0, (self._clock() - started_at).total_seconds() * 1_000)

    def _drop(self) -> None:
        self._in_flight.clear()
        self._lines.drop()


#: The time for which a topic's route, or a failure to look it up, is cached.
_HOLD_SECONDS: Final = 5.0
_FAILURE_HOLDS_SECONDS: Final = 0.5

#: The maximum size of a message's body. Brokers accept frames of 16 MiB, headers included, and close the connection on
#: a longer one.
_MAX_BODY: Final = (16 << 20) - (64 << 10)


class _Sent(NamedTuple):
    number: int
    broker: str
    until: float


class SendConnections:
    """Connections to the brokers of a topic, which send messages and report each result under the caller's index."""

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self.client = Client(settings)
        self._topic = topic
        self._timeout = settings.timeout_seconds
        self._connections: dict[str, Connection] = {}
        self._in_flight: dict[tuple[str, int], _Sent] = {}
        self._turns = count()
        self._queues: list[TopicQueue] = []
        self._failed: RemotingError | None = None
        self._known_until = 0.0

    def send(self, index: int, message: OutgoingMessage, key: str | None) -> None:
        """Send a message to the queue of its key, by default to the next queue. Raises RemotingError on failure."""
        if len(message.body) > _MAX_BODY:
            raise Refused(
                self._topic, 13, f"the body has {len(message.body)} bytes, but brokers accept at most {_MAX_BODY}"
            )
        queues = self._writable()
        queue = queues[next(self._turns) % len(queues)] if key is None else queue_of_key(queues, key)
        try:
            if queue.broker not in self._connections:
                self._connections[queue.broker] = self.client.open_to(queue)
            number = self._connections[queue.broker].send(*send_request(queue, message))
        except RemotingError:
            if not self._is_flying(queue.broker):  # otherwise the results of messages in flight would be lost
                self._close(queue.broker)
            raise
        self._in_flight[queue.broker, number] = _Sent(index, queue.broker, time.monotonic() + self._timeout)

    def results(self, wait_seconds: float) -> Iterator[tuple[int, RemotingError | None]]:
        """Yield the index of each ended message and its error, None if the broker stored it; waits if none ended."""
        found = self._received()
        if not found and self._connections:
            select.select(list(self._connections.values()), [], [], wait_seconds)
            found = self._received()
        yield from found
        now = time.monotonic()
        for key, sent in list(self._in_flight.items()):
            if now > sent.until:
                del self._in_flight[key]
                yield sent.number, TimedOut(sent.broker, f"no response within {self._timeout:g} s")
                if not self._is_flying(sent.broker):
                    self._close(sent.broker)  # another connection may succeed

    def drop(self) -> None:
        """Drop the messages in flight; brokers may still store them, but no result is reported."""
        self._in_flight.clear()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _received(self) -> list[tuple[int, RemotingError | None]]:
        found: list[tuple[int, RemotingError | None]] = []
        for broker, connection in list(self._connections.items()):
            try:
                while (response := connection.receive(0.0)) is not None:
                    sent = self._in_flight.pop((broker, response.opaque), None)
                    if sent is not None:
                        refused = response.code != codes.SUCCESS
                        error = Refused(connection.address, response.code, response.remark) if refused else None
                        found.append((sent.number, error))
            except RemotingError as error:
                self._close(broker)
                lost = [key for key in self._in_flight if key[0] == broker]
                found += [(self._in_flight.pop(key).number, error) for key in lost]
        return found

    def _close(self, broker: str) -> None:
        self._known_until = 0.0  # the queue may have moved
        if broker in self._connections:
            self._connections.pop(broker).close()

    def _is_flying(self, broker: str) -> bool:
        return any(key[0] == broker for key in self._in_flight)

    def _writable(self) -> list[TopicQueue]:
        if time.monotonic() >= self._known_until:
            try:
                self._queues, self._failed = self.client.queues(self._topic, to_write=True), None
            except RemotingError as error:
                self._failed = error
            self._known_until = time.monotonic() + (_FAILURE_HOLDS_SECONDS if self._failed else _HOLD_SECONDS)
        if self._failed is not None:
            raise self._failed
        return self._queues


def message_of(request: Request, tag: str) -> OutgoingMessage:
    """Return the message of a request; its key is the delivery id, and its properties are the request's headers.

    CloudEvents attributes are named as in the CloudEvents SDK for RocketMQ.
    """
    properties = {"KEYS": request.delivery_id}
    if request.content_type:
        properties["CE_contenttype"] = request.content_type
    if tag:
        properties["TAGS"] = tag
    if request.order_key is not None:
        properties["__SHARDINGKEY"] = request.order_key
    for name, value in request.headers.items():
        if name.lower().startswith("ce-"):
            properties[f"CE_{name[3:]}"] = unquote(value)  # escaping is for HTTP only
        else:
            properties[name] = value
    return OutgoingMessage(request.payload, properties)


#: The response's `error_class` by code; `policy.response_to_outcome` decides which of them are permanent.
_CLASSES: Final = {
    2: "Busy",
    13: "MessageTooLarge",
    16: "NotAuthorized",
    17: "TopicUnknown",
}


def error_class(error: RemotingError) -> str:
    """Return the error class of a message without an acknowledgement."""
    match error:
        case Refused():
            return _CLASSES.get(error.code, "RocketmqError")
        case TimedOut():
            return "Timeout"
        case HostUnknown():
            return "HostUnknown"
        case TlsFailed():
            return "TlsError"
        case Unreachable() | NoRoute():
            return "NetworkError"
        case _:
            return "RocketmqError"


def open_rocketmq(opening: TargetSetup[RocketmqFields]) -> RocketmqTarget:
    """Return a RocketMQ target; reads its connection now, and raises ConnectionUnusable if it cannot be used."""
    target = opening.target
    settings = replace(client_settings(opening.connections(target.connection)), timeout_seconds=target.timeout_seconds)
    return RocketmqTarget(settings, (target.topic, target.tag), max_in_flight=target.max_in_flight, clock=opening.clock)
