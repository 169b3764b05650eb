"""Reads the rule-file fields that several sources share: those of sources with brokers, and `mapping`."""

from __future__ import annotations

from typing import Any

from eventbridge.rules.fields import Fields
from eventbridge.rules.model import EventMapping
from eventbridge.rules.vocabulary import FIELDS

#: The field names of a source with brokers.
WORDS = ("topics", "connection", "start_at", "offset_reset", "mapping")


def read_broker_fields(fields: Fields) -> dict[str, Any]:
    """Return the broker fields of a source; records errors in `fields`."""
    return {
        "connection": fields.name("connection", required=True),
        "offset_reset": fields.choice("offset_reset", "earliest", ("fail", "earliest", "latest")),
        "mapping": read_mapping(fields),
    }


def read_mapping(fields: Fields) -> EventMapping | None:
    """Return the `mapping` field of a source, or None if it has none; records errors in `fields`."""
    if fields.get("mapping") is None:
        return None
    own = fields.nested("mapping", "a mapping")
    texts = {name: own.text(name, required=name in ("type", "source")) for name in FIELDS["a mapping"]}
    own.close()
    required = {"type": texts.pop("type"), "source": texts.pop("source")}
    return EventMapping(**required, **{name: text for name, text in texts.items() if text})
