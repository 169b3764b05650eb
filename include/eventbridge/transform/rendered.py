"""What goes into a transform besides the event, and what comes out."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Protocol

from eventbridge.event.cloudevent import Event
from eventbridge.transform.budget import Budget


class Scope(NamedTuple):
    """What a delivery knows beside its event; `ingested_at` (aware) is when the event arrived on our bus.

    `budget` is charged with the CPU time of an expensive transform (None: nobody counts).
    """

    rule: str
    bus: str
    target: str
    delivery_id: str
    ingested_at: datetime
    budget: Budget | None = None


class Rendered(NamedTuple):
    """What the target gets: body, its media type ("": none), further headers (None: there are none)."""

    payload: bytes
    content_type: str
    headers: dict[str, str] | None = None


class Renderer(Protocol):
    """A transform made ready for one target of one rule; keeps nothing between events, so threads may share it."""

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return what the target gets of the event; raises TransformFailed, which says what is in the way.

        Raises BudgetSpent, with nothing evaluated, if the scope's budget is used up.
        """
