"""Reads the webhooks of a bus."""

from __future__ import annotations

from eventbridge.errors import RuleError
from eventbridge.rules.fields import NAME, NAME_REMEDY, Fields
from eventbridge.rules.node import Node
from eventbridge.rules.vocabulary import FIELDS, SIGNATURES
from eventbridge.rules.webhook import Webhook


def read_webhooks(fields: Fields, errors: list[RuleError]) -> dict[str, Webhook]:
    """Return the webhooks of a bus; errors are added to `errors`."""
    return {name: _webhook(name, node, errors) for name, node in fields.mapping("webhooks").items()}


def _webhook(name: str, node: Node, errors: list[RuleError]) -> Webhook:
    if not NAME.fullmatch(name):
        errors.append(node.error_at_key(f"{name!r} is not a valid name for a webhook", NAME_REMEDY))
    fields = Fields(node, errors, "a webhook")
    read = Webhook(
        signature=fields.choice("signature", SIGNATURES[0], SIGNATURES, required=True),
        connection=fields.name("connection", required=True),
        mapping=_mapping(fields),
    )
    fields.close()
    return read


def _mapping(fields: Fields) -> dict[str, str]:
    if fields.get("mapping") is None:
        return {}
    own = fields.below("mapping", "a webhook's mapping")
    texts = {name: own.text(name) for name in FIELDS["a webhook's mapping"]}
    own.close()
    return {name: text for name, text in texts.items() if text}
