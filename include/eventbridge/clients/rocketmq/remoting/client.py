"""A client that reads the queues of a topic, their offsets and messages, commits a group's offsets, and sends."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

from eventbridge.clients.rocketmq.remoting import codes
from eventbridge.clients.rocketmq.remoting.connection import Connection, KeptConnection
from eventbridge.clients.rocketmq.remoting.errors import (
    Malformed,
    NoRoute,
    Refused,
    RemotingError,
    TimedOut,
    Unreachable,
)
from eventbridge.clients.rocketmq.remoting.frames import ResponseFrame
from eventbridge.clients.rocketmq.remoting.messages import IncomingMessage, OutgoingMessage
from eventbridge.clients.rocketmq.remoting.queues import TopicQueue
from eventbridge.clients.rocketmq.remoting.reading import PullResult, pull_fields, pulled
from eventbridge.clients.rocketmq.remoting.sending import batch_request, offset_of, send_request
from eventbridge.clients.rocketmq.remoting.settings import ClientSettings

_READS, _WRITES = 4, 2
_MASTER: Final = "0"
#: The pause before a request that a busy broker refused is sent again.
_POLL_SECONDS: Final = 0.05

Value = TypeVar("Value")


class Client:
    """Sends requests to name servers and brokers; connects on first use. Threads may share one.

    Every call raises RemotingError: Unreachable (with TimedOut, HostUnknown, TlsFailed), Refused, NoRoute, Malformed.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._lines: dict[tuple[str, str], KeptConnection] = {}
        self._opening = Lock()
        self._addresses: dict[str, str] = {}
        self._name_servers = list(settings.name_servers)  # the last one that responded comes first
        self._away_until: dict[str, float] = {}

    def queues(self, topic: str, *, to_write: bool = False) -> list[TopicQueue]:
        """Return the queues of a topic, on all brokers, that can currently be read (with `to_write`, written to).

        Raises Refused (17) if the topic does not exist, NoRoute if it has no such queue.
        """
        route = self._route(topic)
        asked, number = (_WRITES, "writeQueueNums") if to_write else (_READS, "readQueueNums")
        found = sorted(
            TopicQueue(topic, str(each["brokerName"]), queue)
            for each in route["queueDatas"]
            if int(each["perm"]) & asked
            for queue in range(int(each[number]))
        )
        if not found:
            raise NoRoute(f"no queue of the topic {topic!r} can be {'written to' if to_write else 'read'} now")
        return found

    def earliest(self, queue: TopicQueue) -> int:
        """Return the offset of the first message that the broker still has."""
        return self._offset(queue, codes.MIN_OFFSET)

    def end(self, queue: TopicQueue) -> int:
        """Return the offset that the next message gets."""
        return self._offset(queue, codes.MAX_OFFSET)

    def ends(self, queues: Sequence[TopicQueue]) -> dict[TopicQueue, int]:
        """Return the end of each queue; if any broker responds, the queues of unresponsive brokers are left out.

        The brokers are queried in parallel; one that did not respond is skipped while `is_away` is true, unless
        all are away.
        """
        by_broker: dict[str, list[TopicQueue]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker].append(queue)
        asked = [broker for broker in by_broker if not self.is_away(broker)] or list(by_broker)
        found: dict[TopicQueue, int] = {}
        failed: Unreachable | None = None
        with ThreadPoolExecutor(max_workers=max(1, min(8, len(asked)))) as pool:
            responses = {broker: pool.submit(self.again, partial(self._ends, by_broker[broker])) for broker in asked}
            for broker, response in responses.items():
                try:
                    found |= response.result()
                except Unreachable as error:
                    self._away_until[broker] = time.monotonic() + self.settings.away_seconds
                    failed = failed or error
        if failed is not None and not found:
            raise failed
        return found

    def is_away(self, broker: str) -> bool:
        """Return whether a broker recently did not respond."""
        return time.monotonic() < self._away_until.get(broker, 0.0)

    def offset_at(self, queue: TopicQueue, milliseconds: int) -> int:
        """Return the offset of the first message stored at or after the given time, in ms since 1970; the end if none
        was."""
        return self._offset(queue, codes.SEARCH_OFFSET, timestamp=milliseconds)

    def committed(self, group: str, queue: TopicQueue) -> int | None:
        """Return the offset that a group has committed for a queue, or None if there is none."""
        fields = {**_queue_fields(queue), "consumerGroup": group, "setZeroIfNotFound": "false"}
        response = self.ask_broker(queue, codes.QUERY_OFFSET, fields, (codes.SUCCESS, codes.NEVER_COMMITTED))
        return _number(response, "offset") if response.code == codes.SUCCESS else None

    def commit(self, group: str, queue: TopicQueue, offset: int) -> None:
        """Commit a group's next offset to read; an unknown group is created if the broker allows that."""
        fields = {**_queue_fields(queue), "consumerGroup": group, "commitOffset": offset}
        try:
            self.ask_broker(queue, codes.UPDATE_OFFSET, fields)
        except Refused as error:
            if error.code != codes.NO_GROUP:
                raise
            first = pull_fields(group, queue, offset, 1)  # the first pull of a client registers its group
            self.ask_broker(queue, codes.PULL, first, (codes.SUCCESS, codes.NOT_FOUND, codes.AGAIN, codes.MOVED))
            self.ask_broker(queue, codes.UPDATE_OFFSET, fields)

    def read(self, queue: TopicQueue, start: int, end: int) -> Iterator[list[IncomingMessage]]:
        """Yield the messages of a queue in a range of offsets, in order, in several lists.

        Offsets without a message are skipped. Raises Refused (21) if the queue ends before the range does.
        """
        for part in self.read_bodies(queue, start, end):
            yield [message for each in part for message in each.messages()]

    def read_bodies(self, queue: TopicQueue, start: int, end: int) -> Iterator[list[PullResult]]:
        """Yield the undecoded responses that `read` decodes."""
        connection = self.again(lambda: self.open_to(queue))
        try:
            yield from pulled(connection, self.settings.read_group, queue, (start, end))
        finally:
            connection.close()

    def send(self, queue: TopicQueue, message: OutgoingMessage) -> int:
        """Send a message and return its offset. Raises Refused if it was not stored, TimedOut if it may have been."""
        return self._send(queue, send_request(queue, message))

    def send_batch(self, queue: TopicQueue, messages: Sequence[OutgoingMessage]) -> range:
        """Send messages as one batch, and return their offsets, which are consecutive."""
        first = self._send(queue, batch_request(queue, messages))
        return range(first, first + len(messages))

    def open_to(self, queue: TopicQueue) -> Connection:
        """Open a new connection to the broker of a queue; the caller closes it."""
        return Connection(self._address(queue), self.settings)

    def greet(self, topic: str) -> None:
        """Check that all brokers of a topic can be reached, accept the credentials, and allow writing to the topic."""
        queues = self.queues(topic, to_write=True)
        beat = {"clientID": "eventbridge", "producerDataSet": [{"groupName": "eventbridge"}], "consumerDataSet": []}
        for broker in sorted({queue.broker for queue in queues}):
            self.ask(self._addresses[broker], codes.HEARTBEAT, {}, body=json.dumps(beat).encode())

    def ask_broker(
        self, queue: TopicQueue, code: int, fields: Mapping[str, object], accepted: Sequence[int] = (codes.SUCCESS,)
    ) -> ResponseFrame:
        """Send an idempotent request to the broker of a queue."""
        return self.again(lambda: self.ask(self._address(queue), code, fields, accepted))

    def ask_together(
        self,
        queue: TopicQueue,
        code: int,
        requests: Sequence[Mapping[str, object]],
        accepted: Sequence[int] = (codes.SUCCESS,),
        *,
        looks: bool = False,
    ) -> list[ResponseFrame]:
        """Send several requests of one kind to a queue's broker; the responses are in the order of `requests`.

        If `looks`, the broker has only `look_seconds` to respond.
        """
        address = self._address(queue)
        seconds = self._look_seconds if looks else self.settings.timeout_seconds
        found: dict[int, ResponseFrame] = {}
        with self._line(address, "look" if looks else "ask").connection() as connection:
            numbers = [connection.send(code, fields) for fields in requests]
            end = time.monotonic() + seconds
            while not found.keys() >= set(numbers):
                response = connection.receive(end - time.monotonic())
                if response is None:
                    raise TimedOut(address, f"no response within {seconds:g} s")
                if response.code not in accepted:
                    raise Refused(address, response.code, response.remark)
                found[response.opaque] = response
        return [found[number] for number in numbers]

    def ask(
        self,
        address: str,
        code: int,
        fields: Mapping[str, object],
        accepted: Sequence[int] = (codes.SUCCESS,),
        body: bytes = b"",
    ) -> ResponseFrame:
        """Send an idempotent request to a server, and repeat it while the server is busy. Raises Refused."""
        end = time.monotonic() + self.settings.timeout_seconds
        while True:
            with self._line(address, "ask").connection() as connection:
                response = connection.call(code, fields, body)
            if response.code in accepted:
                return response
            if response.code != codes.BUSY or time.monotonic() > end:
                raise Refused(address, response.code, response.remark)
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Close all connections."""
        with self._opening:
            lines, self._lines = self._lines, {}
        for line in lines.values():
            line.close()

    def again(self, call: Callable[[], Value]) -> Value:
        """Make a call, and repeat it once with a fresh route if its connection broke."""
        try:
            return call()
        except TimedOut:
            raise
        except Unreachable:
            self._addresses.clear()
            return call()

    def _offset(self, queue: TopicQueue, code: int, **more: object) -> int:
        return _number(self.ask_broker(queue, code, {**_queue_fields(queue), **more}), "offset")

    def _ends(self, queues: Sequence[TopicQueue]) -> dict[TopicQueue, int]:
        responses = self.ask_together(
            queues[0], codes.MAX_OFFSET, [_queue_fields(queue) for queue in queues], looks=True
        )
        return {queue: _number(response, "offset") for queue, response in zip(queues, responses, strict=True)}

    def _send(self, queue: TopicQueue, request: tuple[int, Mapping[str, object], bytes]) -> int:
        address = self._address(queue)
        with self._line(address, "send").connection() as connection:
            response = connection.call(*request)
        if response.code != codes.SUCCESS:
            raise Refused(address, response.code, response.remark)
        return offset_of(response)

    def _route(self, topic: str) -> Mapping[str, Any]:
        """Query the name servers in turn until one responds, record the brokers' addresses, and return the route."""
        failed: RemotingError | None = None
        for server in list(self._name_servers):
            try:
                fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
                route = json.loads(self.ask(server, codes.ROUTE, fields).body)
                found = {
                    str(each["brokerName"]): str(each["brokerAddrs"][_MASTER])
                    for each in route["brokerDatas"]
                    if _MASTER in each["brokerAddrs"]
                }
                self._addresses.update(found)
                self._name_servers.sort(key=lambda each: each != server)
                return {"queueDatas": [each for each in route["queueDatas"] if each["brokerName"] in found]}
            except Unreachable as error:
                failed = failed or error
            except (ValueError, KeyError, TypeError) as error:
                raise Malformed(f"{server}: a route that cannot be read: {error}") from None
        raise failed or NoRoute("no name server is configured")

    def _address(self, queue: TopicQueue) -> str:
        if queue.broker not in self._addresses:
            self._route(queue.topic)
        if queue.broker not in self._addresses:
            raise NoRoute(f"no broker {queue.broker!r} has the topic {queue.topic!r} now")
        return self._addresses[queue.broker]

    def _line(self, address: str, purpose: str) -> KeptConnection:
        with self._opening:
            seconds = self._look_seconds if purpose == "look" else self.settings.timeout_seconds
            settings = replace(self.settings, timeout_seconds=seconds)
            return self._lines.setdefault((address, purpose), KeptConnection(address, settings))

    @property
    def _look_seconds(self) -> float:
        return min(self.settings.look_seconds, self.settings.timeout_seconds)


def _queue_fields(queue: TopicQueue) -> dict[str, object]:
    return {"topic": queue.topic, "queueId": queue.number, "bname": queue.broker}


def _number(response: ResponseFrame, name: str) -> int:
    try:
        return int(response.fields[name])
    except (KeyError, ValueError):
        raise Malformed(f"a response without the number {name!r}") from None
