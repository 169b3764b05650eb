"""What a rule file says of a source of the type `rocketmq`; read wherever rules are, so it imports no more."""

from __future__ import annotations

from typing import Literal

from eventbridge.rule.model import Source
from eventbridge.rule.types import SourceType
from eventbridge.sources.broker_fields import WORDS, read_broker_fields


class RocketmqFields(Source):
    """Topics of a RocketMQ cluster; `connection` names where its name servers are and who we are to its brokers."""

    type: Literal["rocketmq"] = "rocketmq"
    connection: str = ""


ROCKETMQ = SourceType(
    "rocketmq",
    RocketmqFields,
    "eventbridge.sources.rocketmq.open:open_rocketmq",
    read=read_broker_fields,
    words=WORDS,
)
