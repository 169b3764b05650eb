"""Webhooks of a bus: who may call them, how a call is known to be theirs, and what event it becomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from pydantic import Field

from eventbridge.rule.frozen import FrozenModel


class Webhook(FrozenModel):
    """One webhook; `connection` holds the secrets of its signature.

    `mapping` says of attributes what they are: a text, or a path such as `$.id` in the JSON of a call.
    """

    signature: Literal["github", "stripe", "standard"]
    connection: str
    mapping: Mapping[str, str] = Field(default_factory=dict)


class HasWebhooks(Protocol):
    """A bus, as far as its webhooks go."""

    @property
    def webhooks(self) -> Mapping[str, Webhook]:
        """Its webhooks by name."""


def webhook_conflicts(buses: Mapping[str, HasWebhooks]) -> Iterator[tuple[str, str, str]]:
    """Yield the webhooks that a bus before has too: the bus, the name, and the bus before."""
    seen: dict[str, str] = {}
    for bus, found in buses.items():
        for name in found.webhooks:
            if seen.setdefault(name, bus) != bus:
                yield bus, name, seen[name]
