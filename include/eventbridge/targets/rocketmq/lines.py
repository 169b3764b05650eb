"""Connections to the brokers of one topic, with many messages in flight."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from itertools import count
from typing import Final, NamedTuple

from eventbridge.clients.rocketmq.remoting import codes
from eventbridge.clients.rocketmq.remoting.client import Client
from eventbridge.clients.rocketmq.remoting.connection import Connection
from eventbridge.clients.rocketmq.remoting.errors import Refused, RemotingError, TimedOut
from eventbridge.clients.rocketmq.remoting.messages import OutgoingMessage
from eventbridge.clients.rocketmq.remoting.queues import TopicQueue, queue_of_key
from eventbridge.clients.rocketmq.remoting.sending import send_request
from eventbridge.clients.rocketmq.remoting.settings import ClientSettings

#: How long a topic's route, or the failure to look it up, is cached.
_HOLD_SECONDS: Final = 5.0
_FAILURE_HOLDS_SECONDS: Final = 0.5

#: Brokers accept frames of 16 MiB, and close the connection on longer ones.
_MAX_BODY: Final = (16 << 20) - (64 << 10)


class _Sent(NamedTuple):
    number: int
    broker: str
    until: float


class SendConnections:
    """Sends messages and reports the result of each, by the caller's index."""

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self.client = Client(settings)
        self._topic = topic
        self._timeout = settings.timeout_seconds
        self._connections: dict[str, Connection] = {}
        self._flying: dict[tuple[str, int], _Sent] = {}
        self._turns = count()
        self._queues: list[TopicQueue] = []
        self._failed: RemotingError | None = None
        self._known_until = 0.0

    def send(self, index: int, message: OutgoingMessage, key: str | None) -> None:
        """Send a message, by its key or round-robin; raises RemotingError if that is not possible."""
        if len(message.body) > _MAX_BODY:
            raise Refused(self._topic, 13, f"a body of {len(message.body)} bytes, and a broker accepts {_MAX_BODY}")
        queues = self._writable()
        queue = queues[next(self._turns) % len(queues)] if key is None else queue_of_key(queues, key)
        try:
            if queue.broker not in self._connections:
                self._connections[queue.broker] = self.client.open_to(queue)
            number = self._connections[queue.broker].send(*send_request(queue, message))
        except RemotingError:
            if not self._is_flying(queue.broker):  # otherwise messages in flight are reported first
                self._close(queue.broker)
            raise
        self._flying[queue.broker, number] = _Sent(index, queue.broker, time.monotonic() + self._timeout)

    def ended(self, wait_seconds: float) -> Iterator[tuple[int, RemotingError | None]]:
        """Yield the results of messages, None: the broker has it; waits for one if there is none."""
        found = self._received()
        if not found and self._connections:
            select.select(list(self._connections.values()), [], [], wait_seconds)
            found = self._received()
        yield from found
        now = time.monotonic()
        for place, sent in list(self._flying.items()):
            if now > sent.until:
                del self._flying[place]
                yield sent.number, TimedOut(sent.broker, f"no response within {self._timeout:g} s")
                if not self._is_flying(sent.broker):
                    self._close(sent.broker)  # another connection may succeed

    def drop(self) -> None:
        """Drop the messages in flight: they may arrive, without a report."""
        self._flying.clear()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _received(self) -> list[tuple[int, RemotingError | None]]:
        found: list[tuple[int, RemotingError | None]] = []
        for broker, connection in list(self._connections.items()):
            try:
                while (response := connection.receive(0.0)) is not None:
                    sent = self._flying.pop((broker, response.opaque), None)
                    if sent is not None:
                        refused = response.code != codes.SUCCESS
                        error = Refused(connection.address, response.code, response.remark) if refused else None
                        found.append((sent.number, error))
            except RemotingError as error:
                self._close(broker)
                lost = [place for place in self._flying if place[0] == broker]
                found += [(self._flying.pop(place).number, error) for place in lost]
        return found

    def _close(self, broker: str) -> None:
        self._known_until = 0.0  # the queue may have moved
        if broker in self._connections:
            self._connections.pop(broker).close()

    def _is_flying(self, broker: str) -> bool:
        return any(place[0] == broker for place in self._flying)

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
