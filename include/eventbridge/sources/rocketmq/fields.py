"""Defines the rule-file fields of the source type `rocketmq`; it imports little, because all rule readers import it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Source
from eventbridge.rules.types import SourceType
from eventbridge.sources.fields import WORDS, read_broker_fields


class RocketmqFields(Source):
    """Topics of a RocketMQ cluster; `connection` contains the name servers and the credentials.

    In `pop` mode, the brokers track each message: it is delivered to `group` ("" = the bus's name), and again after
    `visibility_timeout` (seconds) unless it was acknowledged.
    """

    LATER: ClassVar[tuple[str, ...]] = (*Source.LATER, "mode", "group", "visibility_timeout")

    type: Literal["rocketmq"] = "rocketmq"
    connection: str = ""
    mode: Literal["offsets", "pop"] = "offsets"
    group: str = ""
    visibility_timeout: float = 60.0

    @property
    def is_queue(self) -> bool:
        """Return whether messages are popped."""
        return self.mode == "pop"


def _read_fields(fields: Fields) -> dict[str, Any]:
    read = read_broker_fields(fields)
    mode = fields.choice("mode", "offsets", ("offsets", "pop"))
    if mode == "offsets":
        fields.refuse(("group", "visibility_timeout"), "{} requires mode: pop", "Remove it, or write mode: pop")
        return read
    fields.refuse(
        ("offset_reset",), "{} has no effect with mode: pop, in which brokers track each message", "Remove it"
    )
    start = fields.time("start_at", "latest", ("latest", "earliest"))
    if start not in ("latest", "earliest"):
        fields.add_to("start_at", "must be earliest or latest with mode: pop", "Write one of these")
    return read | {
        "mode": mode,
        "group": fields.name("group"),
        "visibility_timeout": fields.duration("visibility_timeout", 60.0, 10, 12 * 3600),
    }


ROCKETMQ = SourceType(
    "rocketmq",
    RocketmqFields,
    "eventbridge.sources.rocketmq.queue:open_rocketmq",
    read=_read_fields,
    words=(*WORDS, "mode", "group", "visibility_timeout"),
)
