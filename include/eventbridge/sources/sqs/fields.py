"""Defines the rule-file fields of the source type `sqs`; it imports little, because all rule readers import it."""

from __future__ import annotations

from typing import Any, Literal

from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Source
from eventbridge.rules.types import SourceType
from eventbridge.sources.fields import read_mapping


class SqsFields(Source):
    """Queues of SQS, named by `topics`; `connection` contains endpoint and credentials ("" = AWS's default chain).

    A message is delivered again after `visibility_timeout` (seconds) unless it was acknowledged.
    """

    type: Literal["sqs"] = "sqs"
    connection: str = ""
    visibility_timeout: float = 60.0

    @property
    def is_queue(self) -> bool:
        """Return True."""
        return True


def _read_fields(fields: Fields) -> dict[str, Any]:
    return {
        "connection": fields.name("connection"),
        "visibility_timeout": fields.duration("visibility_timeout", 60.0, 10, 12 * 3600),
        "mapping": read_mapping(fields),
    }


SQS = SourceType(
    "sqs",
    SqsFields,
    "eventbridge.sources.sqs.queue:open_sqs",
    read=_read_fields,
    words=("topics", "connection", "visibility_timeout", "mapping"),
)
