"""Receives messages in pop mode, in which a broker redelivers those that are not acknowledged in time.

A redelivered message is in a retry topic of the group, whose name depends on the broker's version; a mark in its
receipt shows which name applies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from eventbridge.clients.rocketmq.remoting import codes
from eventbridge.clients.rocketmq.remoting.client import Client
from eventbridge.clients.rocketmq.remoting.errors import Malformed
from eventbridge.clients.rocketmq.remoting.frames import ResponseFrame
from eventbridge.clients.rocketmq.remoting.messages import IncomingMessage, decode_messages
from eventbridge.clients.rocketmq.remoting.queues import TopicQueue

#: The maximum number of messages that a broker returns for one pop.
MAX_AT_ONCE: Final = 32
_REQUESTS_AT_ONCE: Final = 256
_NOTHING: Final = (codes.NOT_FOUND, codes.POLLING_FULL, codes.POLLING_TIMEOUT)
_ALREADY_RELEASED: Final = (codes.MESSAGE_ILLEGAL, codes.NO_MESSAGE)


class PoppedMessage(NamedTuple):
    """A message that a broker delivered, its receipt for this delivery, and its id.

    The id is the producer's, which stays the same when the message is redelivered; without one, it is the position.
    """

    receipt: str
    message_id: str
    message: IncomingMessage


class _Receipt(NamedTuple):
    """A broker's receipt, which has eight parts, and the position of the message that it names."""

    topic: str
    broker: str
    queue: int
    offset: int
    note: str

    @classmethod
    def parse(cls, receipt: str, topic: str, group: str) -> _Receipt:
        parts = receipt.split(" ")
        if len(parts) != 8:
            raise Malformed(f"{receipt!r} is not a receipt of a popped message")
        return cls(retry_topics(topic, group)[parts[4]], parts[5], int(parts[6]), int(parts[7]), receipt)

    def request_fields(self, group: str) -> dict[str, object]:
        return {
            "consumerGroup": group,
            "topic": self.topic,
            "queueId": self.queue,
            "extraInfo": self.note,
            "offset": self.offset,
            "bname": self.broker,
        }


def retry_topics(topic: str, group: str) -> Mapping[str, str]:
    """Return the topics that may hold messages of a topic, by the mark in receipts: 0 is the topic itself."""
    return {"0": topic, "1": f"%RETRY%{group}_{topic}", "2": f"%RETRY%{group}+{topic}"}


class PopConsumer:
    """Pops messages of a topic for a group; threads may share one. If `from_end`, a new group skips older messages."""

    def __init__(self, client: Client, topic: str, group: str, visibility_timeout: float, *, from_end: bool) -> None:
        self._client = client
        self._topic = topic
        self._group = group
        self._invisible = round(visibility_timeout * 1_000)
        self._from_end = from_end

    def pop(self, broker: str, at_most: int) -> list[PoppedMessage]:
        """Return the messages that a broker delivers now; none if the broker has none, or is serving other
        consumers."""
        fields = {
            "consumerGroup": self._group,
            "topic": self._topic,
            "queueId": -1,
            "maxMsgNums": min(at_most, MAX_AT_ONCE),
            "invisibleTime": self._invisible,
            "pollTime": 0,
            "bornTime": 0,
            "initMode": 1 if self._from_end else 0,
            "expType": "TAG",
            "exp": "*",
            "order": "false",
            "bname": broker,
        }
        response = self._client.ask_broker(
            TopicQueue(self._topic, broker, 0), codes.POP, fields, (codes.SUCCESS, *_NOTHING)
        )
        return [] if response.code != codes.SUCCESS else _popped(response, broker)

    def brokers(self) -> list[str]:
        """Return the brokers that currently have the topic."""
        return sorted({queue.broker for queue in self._client.queues(self._topic)})

    def acknowledge(self, receipts: Sequence[str]) -> None:
        """Acknowledge messages; expired receipts and missing messages are ignored."""
        accepted = (codes.SUCCESS, *_ALREADY_RELEASED)
        self._ask_all(codes.ACKNOWLEDGE, receipts, lambda each: each.request_fields(self._group), accepted)

    def extend(self, receipts: Sequence[str]) -> list[str]:
        """Restart the visibility timeout of messages, and return their new receipts."""
        accepted = (codes.SUCCESS, *_ALREADY_RELEASED)
        fields = {"invisibleTime": self._invisible}
        responses = self._ask_all(
            codes.CHANGE_INVISIBLE_TIME, receipts, lambda each: each.request_fields(self._group) | fields, accepted
        )
        return [_extended(receipt, responses[receipt]) for receipt in receipts]

    def waiting(self) -> int:
        """Return the number of waiting messages according to the group's offsets; messages in flight may be counted.

        Redelivered messages are in one queue of each broker. Name servers learn of that queue late, so the brokers are
        queried.
        """
        queues = self._client.queues(self._topic)
        again = [topic for mark, topic in retry_topics(self._topic, self._group).items() if mark != "0"]
        queues += [TopicQueue(topic, broker, 0) for broker in {queue.broker for queue in queues} for topic in again]
        count = 0
        for queue, end in self._client.ends(queues).items():
            if end > 0:
                done = self._client.committed(self._group, queue)
                count += max(0, end - (self._client.earliest(queue) if done is None else done))
        return count

    def _ask_all(
        self,
        code: int,
        receipts: Sequence[str],
        asked: Callable[[_Receipt], Mapping[str, object]],
        accepted: Sequence[int],
    ) -> dict[str, ResponseFrame]:
        by_broker: dict[str, list[_Receipt]] = defaultdict(list)
        for receipt in receipts:
            found = _Receipt.parse(receipt, self._topic, self._group)
            by_broker[found.broker].append(found)
        responses: dict[str, ResponseFrame] = {}
        for broker, mine in by_broker.items():
            queue = TopicQueue(self._topic, broker, 0)
            for first in range(0, len(mine), _REQUESTS_AT_ONCE):
                some = mine[first : first + _REQUESTS_AT_ONCE]
                ask = partial(self._client.ask_together, queue, code, [asked(each) for each in some], accepted)
                responses |= zip((each.note for each in some), self._client.again(ask), strict=True)
        return responses


def _popped(response: ResponseFrame, broker: str) -> list[PoppedMessage]:
    fields = response.fields
    starts = _parse_by_queue(fields.get("startOffsetInfo", ""))
    offsets = {queue: text.split(",") for queue, text in _parse_by_queue(fields.get("msgOffsetInfo", "")).items()}
    taken: dict[int, int] = defaultdict(int)
    found = []
    for message in decode_messages(response.body):
        receipt = message.properties.get("POP_CK")
        if receipt is None:
            try:
                # The offset in a message is not always the one to acknowledge, which the broker lists separately.
                at = offsets[message.queue][taken[message.queue]]
                parts = (starts[message.queue], *(fields[name] for name in ("popTime", "invisibleTime", "reviveQid")))
            except (KeyError, IndexError):
                raise Malformed("the response to a pop does not say how to acknowledge a message") from None
            taken[message.queue] += 1
            receipt = " ".join((*parts, "0", broker, str(message.queue), at))
        message_id = message.properties.get("UNIQ_KEY") or f"{broker}-{message.queue}-{message.offset}"
        found.append(PoppedMessage(receipt, message_id, message))
    return found


def _parse_by_queue(text: str) -> dict[int, str]:
    """Return the value of each queue of the topic itself, from `0 queue value` separated by semicolons."""
    parts = (part.split(" ") for part in text.split(";") if part)
    return {int(part[1]): part[2] for part in parts if len(part) == 3 and part[0] == "0"}


def _extended(receipt: str, response: ResponseFrame) -> str:
    if response.code != codes.SUCCESS:
        return receipt
    _, _, _, _, mark, broker, queue, offset = receipt.split(" ")
    try:
        times = (response.fields[name] for name in ("popTime", "invisibleTime", "reviveQid"))
        return " ".join((offset, *times, mark, broker, queue, offset))
    except KeyError:
        raise Malformed("the response to a change of the visibility timeout does not say when it was made") from None
