"""What a rule file says of a source of the type `kafka`; read wherever rules are, so it imports no more."""

from __future__ import annotations

from typing import Any, Literal

from eventbridge.rule.fields import Fields
from eventbridge.rule.model import EventMapping, Source
from eventbridge.rule.types import SourceType
from eventbridge.rule.vocabulary import FIELDS


class KafkaFields(Source):
    """Topics of a Kafka cluster; `connection` names where it is and who we are to it."""

    type: Literal["kafka"] = "kafka"
    connection: str = ""


def _read(fields: Fields) -> dict[str, Any]:
    return {
        "connection": fields.name("connection", required=True),
        "if_deleted": fields.choice("if_deleted", "earliest", ("fail", "earliest", "latest")),
        "mapping": _mapping(fields),
    }


def _mapping(fields: Fields) -> EventMapping | None:
    if fields.get("mapping") is None:
        return None
    own = fields.below("mapping", "a mapping")
    texts = {name: own.text(name, required=name in ("type", "source")) for name in FIELDS["a mapping"]}
    own.close()
    required = {"type": texts.pop("type"), "source": texts.pop("source")}
    return EventMapping(**required, **{name: text for name, text in texts.items() if text})


KAFKA = SourceType(
    "kafka",
    KafkaFields,
    "eventbridge.sources.kafka.open:open_kafka",
    read=_read,
    words=("topics", "connection", "start_at", "if_deleted", "mapping"),
)
