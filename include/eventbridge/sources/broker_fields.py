"""What a rule file says of a source whose topics lie on a cluster that a connection names."""

from __future__ import annotations

from typing import Any

from eventbridge.rule.fields import Fields
from eventbridge.sources.mapping import read_mapping

#: The words that such a source may have.
WORDS = ("topics", "connection", "start_at", "offset_reset", "mapping")


def read_broker_fields(fields: Fields) -> dict[str, Any]:
    """Return the fields of a source that are its broker's; what is wrong with them is noted there."""
    return {
        "connection": fields.name("connection", required=True),
        "offset_reset": fields.choice("offset_reset", "earliest", ("fail", "earliest", "latest")),
        "mapping": read_mapping(fields),
    }
