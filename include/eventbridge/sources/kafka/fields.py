"""What a rule file says of a source of the type `kafka`; read wherever rules are, so it imports no more."""

from __future__ import annotations

from typing import Literal

from eventbridge.rule.model import Source
from eventbridge.rule.types import SourceType
from eventbridge.sources.broker_fields import WORDS, read_broker_fields


class KafkaFields(Source):
    """Topics of a Kafka cluster; `connection` names where it is and who we are to it."""

    type: Literal["kafka"] = "kafka"
    connection: str = ""


KAFKA = SourceType(
    "kafka",
    KafkaFields,
    "eventbridge.sources.kafka.open:open_kafka",
    read=read_broker_fields,
    words=WORDS,
)
