"""What a rule file says of a source of the type `rocketmq`; read wherever rules are, so it imports no more."""

from __future__ import annotations

from typing import Any, Literal

from eventbridge.rule.fields import Fields
from eventbridge.rule.model import Source
from eventbridge.rule.types import SourceType
from eventbridge.sources.mapping import read_mapping


class RocketmqFields(Source):
    """Topics of a RocketMQ cluster; `connection` names where its name servers are and who we are to its brokers."""

    type: Literal["rocketmq"] = "rocketmq"
    connection: str = ""


def _read(fields: Fields) -> dict[str, Any]:
    return {
        "connection": fields.name("connection", required=True),
        "if_deleted": fields.choice("if_deleted", "earliest", ("fail", "earliest", "latest")),
        "mapping": read_mapping(fields),
    }


ROCKETMQ = SourceType(
    "rocketmq",
    RocketmqFields,
    "eventbridge.sources.rocketmq.open:open_rocketmq",
    read=_read,
    words=("topics", "connection", "start_at", "if_deleted", "mapping"),
)
