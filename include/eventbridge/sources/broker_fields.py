"""What a rule file says of a source whose topics lie on a cluster that a connection names."""

from __future__ import annotations

from typing import Any

from eventbridge.rule.fields import Fields
from eventbridge.sources.mapping import read_mapping

#: The words that such a source may have.
WORDS = ("topics", "connection", "start_at", "if_deleted", "mapping")


def read_broker_fields(fields: Fields) -> dict[str, Any]:
    """Return the fields of a source that are its broker's; what is wrong with them is noted there."""
    return {
        "connection": fields.name("connection", required=True),
        "if_deleted": fields.choice("if_deleted", "earliest", ("fail", "earliest", "latest")),
        "mapping": read_mapping(fields),
    }
