"""Reads a range of offsets of a queue with several pulls in flight, or follows queues with long-polling pulls."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eventbridge.clients.rocketmq.remoting import codes
from eventbridge.clients.rocketmq.remoting.connection import Connection
from eventbridge.clients.rocketmq.remoting.errors import Malformed, Refused, TimedOut
from eventbridge.clients.rocketmq.remoting.frames import ResponseFrame
from eventbridge.clients.rocketmq.remoting.messages import IncomingMessage, decode_messages
from eventbridge.clients.rocketmq.remoting.queues import TopicQueue

#: A broker's default maximum of messages per pull.
_SLICE: Final = 32
#: The maximum number of messages to request per pull from a broker with a larger limit.
_MAX_PER_PULL: Final = 512
_MAX_PULLS_IN_FLIGHT: Final = 8
#: The maximum time that a broker may be silent or busy before a read fails.
SILENCE_SECONDS: Final = 30.0

#: The time by which a broker delays the response to a pull that finds nothing, and the pause between two checks of
#: `is_over`.
_HOLD_MS: Final = 10_000
_POLL_SECONDS: Final = 0.2
_NO_END: Final = 1 << 62

#: The pause before repeating a pull that a busy broker refused, or that made no progress.
_BUSY_SECONDS: Final = 0.02
#: The number of times that a broker must report a gap at an offset before the gap is accepted.
_GAP_REPORTS: Final = 5


class PullResult(NamedTuple):
    """The body of a response; only its messages with start <= offset < end were requested."""

    body: bytes
    start: int
    end: int

    def messages(self) -> list[IncomingMessage]:
        """Return the requested messages. Raises Malformed."""
        return [each for each in decode_messages(self.body) if self.start <= each.offset < self.end]


@dataclass
class _Slice:
    """A part of the range; offsets from `next` on are outstanding."""

    next: int
    end: int
    found: list[PullResult] = field(default_factory=list)
    reports: int = 0


@dataclass
class _ConfirmedGaps:
    """The gaps that a broker reported often enough to be accepted.

    A broker whose index is not yet complete reports a gap up to the end of the index file, and a repeated request finds
    the messages.
    """

    believed_until: int = 0

    def believes(self, part: _Slice, goes_on_at: int) -> bool:
        """Return whether the gap that was reported for a slice, up to `goes_on_at`, is accepted."""
        if goes_on_at > self.believed_until:
            part.reports += 1
            if part.reports < _GAP_REPORTS:
                return False
            self.believed_until = goes_on_at
        return True


def pull_fields(group: str, queue: TopicQueue, offset: int, number: int, hold_ms: int = 0) -> dict[str, object]:
    """Return the fields of a pull that begins at an offset, for all tags, without a commit.

    The broker waits up to `hold_ms` before it answers a pull that finds nothing.
    """
    return {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": queue.number,
        "queueOffset": offset,
        "maxMsgNums": number,
        "sysFlag": 4 | (2 if hold_ms else 0),  # flags: the request has the subscription; the broker may hold it
        "commitOffset": 0,
        "suspendTimeoutMillis": hold_ms,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
        "bname": queue.broker,
    }


def pulled(
    connection: Connection, group: str, queue: TopicQueue, offsets: tuple[int, int]
) -> Iterator[list[PullResult]]:
    """Yield the messages of a queue with offsets[0] <= offset < offsets[1], in order.

    It requests as many messages as the broker returned before, and twice as many after a full response.
    """
    begin, end = offsets
    size = _SLICE
    in_order: deque[_Slice] = deque()
    asked: dict[int, _Slice] = {}
    holes = _ConfirmedGaps()

    def ask(part: _Slice) -> None:
        fields = pull_fields(group, queue, part.next, part.end - part.next)
        asked[connection.send(codes.PULL, fields)] = part

    silence_ends = time.monotonic() + SILENCE_SECONDS
    while True:
        while begin < end and len(asked) < _MAX_PULLS_IN_FLIGHT and len(in_order) < 4 * _MAX_PULLS_IN_FLIGHT:
            in_order.append(_Slice(begin, min(begin + size, end)))
            begin = in_order[-1].end
            ask(in_order[-1])
        if not in_order:
            return
        response = _response_before(connection, silence_ends)
        part = asked.pop(response.opaque, None)
        if part is None:
            continue
        before, wanted = part.next, part.end - part.next
        if _take(part, response, connection.address, holes):
            came = part.next - before
            size = max(size, min(2 * wanted, _MAX_PER_PULL)) if came >= wanted else came
            silence_ends = time.monotonic() + SILENCE_SECONDS
        elif time.monotonic() > silence_ends:
            raise TimedOut(connection.address, f"the broker was busy for {SILENCE_SECONDS:g} s")
        if part.next < part.end:
            ask(part)
        for found in _read_to_their_ends(in_order):
            yield found
            silence_ends = time.monotonic() + SILENCE_SECONDS  # restarted, because the caller may have taken long


def _response_before(connection: Connection, silence_ends: float) -> ResponseFrame:
    response = connection.receive(silence_ends - time.monotonic())
    if response is None:
        raise TimedOut(connection.address, f"no messages within {SILENCE_SECONDS:g} s")
    return response


def _read_to_their_ends(in_order: deque[_Slice]) -> Iterator[list[PullResult]]:
    """Remove the slices at the front that were read to their ends, and yield their results."""
    while in_order and in_order[0].next >= in_order[0].end:
        if found := in_order.popleft().found:
            yield found


def followed(
    connection: Connection, group: str, positions: Mapping[TopicQueue, int], is_over: Callable[[], bool]
) -> Iterator[tuple[TopicQueue | None, list[IncomingMessage], int]]:
    """Yield new messages of queues of one broker, from these offsets, with the offset reached; ends when `is_over`.

    The queue is None if the broker responds but has no new messages.
    """
    parts = {queue: _Slice(offset, _NO_END) for queue, offset in positions.items()}
    holes = {queue: _ConfirmedGaps() for queue in positions}
    asked: dict[int, TopicQueue] = {}

    def ask(queue: TopicQueue) -> None:
        fields = pull_fields(group, queue, parts[queue].next, _SLICE, _HOLD_MS)
        asked[connection.send(codes.PULL, fields)] = queue

    for queue in positions:
        ask(queue)
    silence_ends = time.monotonic() + SILENCE_SECONDS
    while not is_over():
        response = connection.receive(_POLL_SECONDS)
        if response is None:
            if time.monotonic() > silence_ends:
                raise TimedOut(connection.address, f"no messages within {SILENCE_SECONDS:g} s")
            continue
        silence_ends = time.monotonic() + SILENCE_SECONDS
        queue = asked.pop(response.opaque)
        part = parts[queue]
        came_further = _take(part, response, connection.address, holes[queue])
        yield (queue if came_further else None), [one for each in part.found for one in each.messages()], part.next
        part.found = []
        ask(queue)


def _take(part: _Slice, response: ResponseFrame, address: str, holes: _ConfirmedGaps) -> bool:
    """Apply a response to a slice; return whether it made progress."""
    if response.code == codes.BUSY:
        time.sleep(_BUSY_SECONDS)
        return False
    if response.code not in (codes.SUCCESS, codes.NOT_FOUND, codes.AGAIN, codes.MOVED):
        raise Refused(address, response.code, response.remark)
    try:
        goes_on_at = int(response.fields["nextBeginOffset"])
    except (KeyError, ValueError):
        raise Malformed(f"{address}: the response to a pull has no next offset") from None
    if response.code == codes.MOVED and goes_on_at < part.next:
        raise Refused(address, response.code, f"the queue ends at {goes_on_at}, before offset {part.next}")
    came_further = goes_on_at > part.next
    if came_further and response.code == codes.SUCCESS:
        part.found.append(PullResult(response.body, part.next, part.end))
    if not came_further or (response.code == codes.NOT_FOUND and not holes.believes(part, goes_on_at)):
        time.sleep(_BUSY_SECONDS)  # otherwise the same request would be repeated without a pause
        return False
    part.reports = 0
    part.next = goes_on_at
    return True
