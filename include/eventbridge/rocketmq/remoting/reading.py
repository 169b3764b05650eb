"""Reads a range of offsets of a queue, several pulls on their way at a time; or follows queues, by pulls that wait."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eventbridge.rocketmq.remoting import codes
from eventbridge.rocketmq.remoting.connection import Connection
from eventbridge.rocketmq.remoting.errors import Malformed, Refused, TimedOut
from eventbridge.rocketmq.remoting.frames import ResponseFrame
from eventbridge.rocketmq.remoting.messages import IncomingMessage, decoded
from eventbridge.rocketmq.remoting.queues import TopicQueue

#: A broker returns no more at a time, unless its own settings say so.
_SLICE: Final = 32
#: The most that is asked for of one whose settings do.
_MOST: Final = 512
_ON_THEIR_WAY: Final = 8
#: How long a broker may say nothing, or that it is busy.
SILENCE_SECONDS: Final = 30.0

#: How long a broker holds a pull that finds nothing, and how often one that waits for it looks up.
_HOLD_MS: Final = 10_000
_LOOK_SECONDS: Final = 0.2
_NO_END: Final = 1 << 62

_BUSY_SECONDS: Final = 0.02
#: How often a broker must say that there is nothing at an offset before that is believed.
_TIMES_SAID: Final = 5


class PullResult(NamedTuple):
    """The body of a response, of which the messages with start <= offset < end are wanted."""

    body: bytes
    start: int
    end: int

    def messages(self) -> list[IncomingMessage]:
        """Return them; raises Malformed for what is no message."""
        return [each for each in decoded(self.body) if self.start <= each.offset < self.end]


@dataclass
class _Slice:
    """Some offsets of the range: from `next` on they are still to come."""

    next: int
    end: int
    found: list[PullResult] = field(default_factory=list)
    said: int = 0


@dataclass
class _ConfirmedGaps:
    """Up to where a broker was believed that nothing lies there.

    One that has not built its index yet responds as if there were a hole, up to the end of the index's file: what is
    asked for again then is found.
    """

    believed_until: int = 0

    def believes(self, part: _Slice, goes_on_at: int) -> bool:
        """Return whether a slice has no message before `goes_on_at`, as was said just now."""
        if goes_on_at > self.believed_until:
            part.said += 1
            if part.said < _TIMES_SAID:
                return False
            self.believed_until = goes_on_at
        return True


def pull_fields(group: str, queue: TopicQueue, offset: int, number: int, hold_ms: int = 0) -> dict[str, object]:
    """Return the fields of a request for messages from an offset on, whatever their tags; it commits nothing.

    The broker holds one that finds nothing for `hold_ms`.
    """
    return {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": queue.number,
        "queueOffset": offset,
        "maxMsgNums": number,
        "sysFlag": 4 | (2 if hold_ms else 0),  # the subscription stands in the request; it may be put on hold
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
    """Yield what a queue holds of the offsets from the first on, before the second, in order.

    It asks for as many at a time as the broker was seen to return, and tries for twice as many where all came.
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
        while begin < end and len(asked) < _ON_THEIR_WAY and len(in_order) < 4 * _ON_THEIR_WAY:
            in_order.append(_Slice(begin, min(begin + size, end)))
            begin = in_order[-1].end
            ask(in_order[-1])
        if not in_order:
            return
        response = connection.receive(silence_ends - time.monotonic())
        if response is None:
            raise TimedOut(connection.address, f"no messages within {SILENCE_SECONDS:g} s")
        part = asked.pop(response.opaque, None)
        if part is None:
            continue
        before, wanted = part.next, part.end - part.next
        if _take(part, response, connection.address, holes):
            came = part.next - before
            size = max(size, min(2 * wanted, _MOST)) if came >= wanted else came
            silence_ends = time.monotonic() + SILENCE_SECONDS
        elif time.monotonic() > silence_ends:
            raise TimedOut(connection.address, f"nothing but excuses within {SILENCE_SECONDS:g} s")
        if part.next < part.end:
            ask(part)
        while in_order and in_order[0].next >= in_order[0].end:
            if found := in_order.popleft().found:
                yield found
                silence_ends = time.monotonic() + SILENCE_SECONDS  # to take it may have lasted


def followed(
    connection: Connection, group: str, positions: Mapping[TopicQueue, int], is_over: Callable[[], bool]
) -> Iterator[tuple[TopicQueue | None, list[IncomingMessage], int]]:
    """Yield what comes to queues of one broker, from these offsets on, and up to where that is; ends when it is over.

    A queue that is None: the broker responds, and nothing has come.
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
        response = connection.receive(_LOOK_SECONDS)
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
    """Take what a response says of a slice; returns whether it came any further."""
    if response.code == codes.BUSY:
        time.sleep(_BUSY_SECONDS)
        return False
    if response.code not in (codes.SUCCESS, codes.NOT_FOUND, codes.AGAIN, codes.MOVED):
        raise Refused(address, response.code, response.remark)
    try:
        goes_on_at = int(response.fields["nextBeginOffset"])
    except (KeyError, ValueError):
        raise Malformed(f"{address}: the response to a pull does not say where it goes on") from None
    if response.code == codes.MOVED and goes_on_at < part.next:
        raise Refused(address, response.code, f"the queue ends at {goes_on_at}, before offset {part.next}")
    came_further = goes_on_at > part.next
    if came_further and response.code == codes.SUCCESS:
        part.found.append(PullResult(response.body, part.next, part.end))
    if not came_further or (response.code == codes.NOT_FOUND and not holes.believes(part, goes_on_at)):
        time.sleep(_BUSY_SECONDS)  # else a broker that has nothing to say is asked without end
        return False
    part.said = 0
    part.next = goes_on_at
    return True
