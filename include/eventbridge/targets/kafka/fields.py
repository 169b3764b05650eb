"""Defines the rule-file fields of the target type `kafka`; it imports little, because all rule readers import it."""

from __future__ import annotations

from typing import Any, Literal

from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Target, Transform
from eventbridge.rules.types import BATCHED_CHUNK, ChunkSize, TargetType
from eventbridge.rules.vocabulary import CONTENT_MODES


class KafkaFields(Target):
    """A topic that deliveries are published to; `connection` contains the brokers and the credentials."""

    type: Literal["kafka"] = "kafka"
    connection: str = ""
    topic: str = ""


def _read_fields(fields: Fields, transform: Transform | None) -> dict[str, Any]:
    mode = {} if transform is None else {"content_mode": fields.choice("content_mode", "structured", CONTENT_MODES)}
    return {
        "connection": fields.name("connection", required=True),
        "topic": fields.name("topic", required=True),
        "timeout_seconds": fields.duration("timeout", 10.0, 1.0, 30.0),
        "max_in_flight": fields.whole("max_in_flight", 500, 1, 10_000),
        **mode,
    }


def _chunk_size(_: KafkaFields) -> ChunkSize:
    return BATCHED_CHUNK  # a push publishes tens of thousands a second, and keeps each in memory as an object


KAFKA = TargetType(
    "kafka",
    KafkaFields,
    "eventbridge.targets.kafka.target:open_kafka",
    chunk_size=_chunk_size,
    read=_read_fields,
    words=("connection", "topic", "timeout", "max_in_flight", "content_mode"),
)
