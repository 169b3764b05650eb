"""Defines the rule-file fields of the source type `kafka`; it imports little, because all rule readers import it."""

from __future__ import annotations

from typing import Literal

from eventbridge.rules.model import Source
from eventbridge.rules.types import SourceType
from eventbridge.sources.fields import WORDS, read_broker_fields


class KafkaFields(Source):
    """Topics of a Kafka cluster; `connection` contains its address and the credentials."""

    type: Literal["kafka"] = "kafka"
    connection: str = ""


KAFKA = SourceType(
    "kafka",
    KafkaFields,
    "eventbridge.sources.kafka.log:open_kafka",
    read=read_broker_fields,
    words=WORDS,
)
