"""Reads the field `mapping` of a source, which says how plain JSON messages become events."""

from __future__ import annotations

from eventbridge.rules.fields import Fields
from eventbridge.rules.model import EventMapping
from eventbridge.rules.vocabulary import FIELDS


def read_mapping(fields: Fields) -> EventMapping | None:
    """Return the field `mapping` of a source; errors are noted in `fields`."""
    if fields.get("mapping") is None:
        return None
    own = fields.below("mapping", "a mapping")
    texts = {name: own.text(name, required=name in ("type", "source")) for name in FIELDS["a mapping"]}
    own.close()
    required = {"type": texts.pop("type"), "source": texts.pop("source")}
    return EventMapping(**required, **{name: text for name, text in texts.items() if text})
