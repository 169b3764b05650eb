"""Defines the rule-file fields of the source type `kafka`; it imports little, because all rule readers import it."""

from __future__ import annotations

from typing import Any, Literal

from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Source
from eventbridge.rules.types import SourceType
from eventbridge.sources.fields import WORDS, read_broker_fields


class KafkaFields(Source):
    """Topics of a Kafka cluster; `connection` contains its address and the credentials."""

    type: Literal["kafka"] = "kafka"
    connection: str = ""


def _read_fields(fields: Fields) -> dict[str, Any]:
    return {
        **read_broker_fields(fields),
        "tombstones": fields.choice("tombstones", "ignore", ("ignore", "deliver", "dead_letter")),
    }


KAFKA = SourceType(
    "kafka",
    KafkaFields,
    "eventbridge.sources.kafka.log:open_kafka",
    read=_read_fields,
    words=(*WORDS, "tombstones"),
)
