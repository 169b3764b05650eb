"""Requests that send messages, and their responses."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from eventbridge.clients.rocketmq.remoting import codes
from eventbridge.clients.rocketmq.remoting.errors import Malformed
from eventbridge.clients.rocketmq.remoting.frames import ResponseFrame
from eventbridge.clients.rocketmq.remoting.messages import OutgoingMessage, batch_body, properties_text
from eventbridge.clients.rocketmq.remoting.queues import TopicQueue

#: The name of the producer group, which brokers require but do not register.
_PRODUCER: Final = "eventbridge"

Request = tuple[int, Mapping[str, object], bytes]


def send_request(queue: TopicQueue, message: OutgoingMessage) -> Request:
    """Return code, fields and body of the request that sends a message."""
    if not message.body:  # a broker fails on an empty body, except within a batch
        return batch_request(queue, [message])
    return codes.SEND, _fields(queue, properties_text(message.properties), is_batch=False), message.body


def batch_request(queue: TopicQueue, messages: Sequence[OutgoingMessage]) -> Request:
    """Return the request that sends messages as one batch."""
    return codes.SEND_BATCH, _fields(queue, "", is_batch=True), batch_body(messages)


def offset_of(response: ResponseFrame) -> int:
    """Return the offset of a sent message, or of the first message of a batch."""
    try:
        return int(response.fields["queueOffset"])
    except (KeyError, ValueError):
        raise Malformed("the response to a send has no offset") from None


def _fields(queue: TopicQueue, properties: str, *, is_batch: bool) -> dict[str, object]:
    return {  # this request's fields have one-letter names
        "a": _PRODUCER,
        "b": queue.topic,
        "c": "TBW102",  # the template from which a broker may create a missing topic
        "d": 4,
        "e": queue.number,
        "f": 0,  # flags: neither compressed nor in a transaction
        "g": time.time_ns() // 1_000_000,
        "h": 0,
        "i": properties,
        "j": 0,  # consumed zero times
        "k": "false",
        "m": str(is_batch).lower(),
        "n": queue.broker,
    }
