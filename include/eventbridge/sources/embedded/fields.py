"""Defines the rule-file fields of the source type `embedded`; it imports little, because all rule readers import it."""

from __future__ import annotations

from typing import Any, Literal

from eventbridge.rules.fields import Fields
from eventbridge.rules.model import Source
from eventbridge.rules.types import SourceType


class EmbeddedFields(Source):
    """The fields of an embedded bus; `partitions` is the number of partitions with which each topic is created."""

    type: Literal["embedded"] = "embedded"
    partitions: int = 4


def _read_fields(fields: Fields) -> dict[str, Any]:
    return {"partitions": fields.whole("partitions", 4, 1, 256)}


EMBEDDED = SourceType(
    "embedded",
    EmbeddedFields,
    "eventbridge.sources.embedded.bus:open_embedded",
    read=_read_fields,
    words=("topics", "partitions", "start_at"),
)
