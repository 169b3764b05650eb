"""The rule-file fields that all sources on a cluster share, whose address a connection holds."""

from __future__ import annotations

from typing import Any

from eventbridge.rules.fields import Fields
from eventbridge.sources.mapping import read_mapping

#: The names of these fields.
WORDS = ("topics", "connection", "start_at", "offset_reset", "mapping")


def read_broker_fields(fields: Fields) -> dict[str, Any]:
    """Return the broker fields of a source; errors are noted in `fields`."""
    return {
        "connection": fields.name("connection", required=True),
        "offset_reset": fields.choice("offset_reset", "earliest", ("fail", "earliest", "latest")),
        "mapping": read_mapping(fields),
    }
