"""Reads the quotas of an owner."""

from __future__ import annotations

from eventbridge.errors import RuleError
from eventbridge.rules.fields import NAME, NAME_REMEDY, Fields
from eventbridge.rules.node import Node
from eventbridge.rules.owner import Owner
from eventbridge.rules.read_waiting import read_pending_max

_GIB = 1024**3


def read_owner(name: str, node: Node, errors: list[RuleError]) -> Owner:
    """Return an owner's quotas; errors are added to `errors` and their values left out."""
    if not NAME.fullmatch(name):
        errors.append(node.error_at_key(f"{name!r} is not a valid name for an owner", NAME_REMEDY))
    fields = Fields(node, errors, "an owner")
    read = Owner(
        published_per_second=fields.rate("published", of="events"),
        pending_max=read_pending_max(fields, None, errors),
        stored_bytes=fields.size("stored", _GIB, 1_024, 1_024**2 * _GIB) if fields.has("stored") else None,
    )
    fields.close()
    return read
