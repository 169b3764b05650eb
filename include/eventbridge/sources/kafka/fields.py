"""What a rule file says of a source of the type `kafka`; read wherever rules are, so it imports no more."""

from __future__ import annotations

from typing import Any, Literal

from eventbridge.rule.fields import Fields
from eventbridge.rule.model import Source
from eventbridge.rule.types import SourceType
from eventbridge.sources.mapping import read_mapping


class KafkaFields(Source):
    """Topics of a Kafka cluster; `connection` names where it is and who we are to it."""

    type: Literal["kafka"] = "kafka"
    connection: str = ""


def _read(fields: Fields) -> dict[str, Any]:
    return {
        "connection": fields.name("connection", required=True),
        "if_deleted": fields.choice("if_deleted", "earliest", ("fail", "earliest", "latest")),
        "mapping": read_mapping(fields),
    }


KAFKA = SourceType(
    "kafka",
    KafkaFields,
    "eventbridge.sources.kafka.open:open_kafka",
    read=_read,
    words=("topics", "connection", "start_at", "if_deleted", "mapping"),
)
