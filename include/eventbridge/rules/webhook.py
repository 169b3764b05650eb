"""Webhooks of a bus: their signatures, and the mapping from a call to an event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from pydantic import Field

from eventbridge.rules.frozen import FrozenModel


class Webhook(FrozenModel):
    """One webhook; `connection` holds the secrets of its signature.

    `mapping` gives the value of each attribute: a text, or a path such as `$.id` in the JSON of a call.
    """

    signature: Literal["github", "stripe", "standard"]
    connection: str
    mapping: Mapping[str, str] = Field(default_factory=dict)


class HasWebhooks(Protocol):
    """A bus with webhooks."""

    @property
    def webhooks(self) -> Mapping[str, Webhook]:
        """Its webhooks by name."""


def webhook_conflicts(buses: Mapping[str, HasWebhooks]) -> Iterator[tuple[str, str, str]]:
    """Yield the webhooks whose name an earlier bus has too: bus, name, earlier bus."""
    seen: dict[str, str] = {}
    for bus, found in buses.items():
        for name in found.webhooks:
            if seen.setdefault(name, bus) != bus:
                yield bus, name, seen[name]
