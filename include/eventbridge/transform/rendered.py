"""The additional input of a transform, its output, and the protocol of renderers."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple, Protocol

from eventbridge.errors import BudgetSpent, TransformFailed
from eventbridge.event.cloudevent import Event

#: The most that a transform may make of an event; an event that is sent as it is has the limit of events.
MAXIMUM_BYTES: Final = 8 << 20


def too_large(least: int) -> TransformFailed:
    """Return the failure of a payload of at least this size; it need not have been built."""
    return TransformFailed(f"the payload has {least:,} bytes or more, and {MAXIMUM_BYTES:,} are the most")


class Scope(NamedTuple):
    """The values of a delivery besides its event; `ingested_at` (aware) is when the event arrived on the bus.

    `budget` is charged with the CPU time of an expensive transform (None: not counted).
    """

    rule: str
    bus: str
    target: str
    delivery_id: str
    ingested_at: datetime
    budget: Budget | None = None


class Rendered(NamedTuple):
    """The output for the target: body, its media type ("": none), further headers (None: there are none)."""

    payload: bytes
    content_type: str
    headers: dict[str, str] | None = None


class Renderer(Protocol):
    """A transform made ready for one target of one rule; keeps nothing between events, so threads may share it."""

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return what the target gets of the event; raises TransformFailed, which says what is in the way.

        Raises BudgetSpent, with nothing evaluated, if the scope's budget is used up.
        """


class SizeLimitedRenderer:
    """What another renderer makes, if it is not too large."""

    def __init__(self, inner: Renderer) -> None:
        self._inner = inner

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return what the other one does; raises TransformFailed for more than MAXIMUM_BYTES, and what it raises."""
        rendered = self._inner.render(event, scope)
        if len(rendered.payload) > MAXIMUM_BYTES:
            raise too_large(len(rendered.payload))
        return rendered


class Budget:
    """Counts CPU seconds; one per rule and batch, or per share of a batch that one worker routes.

    Nothing is evaluated once it is spent; the evaluation that spends it is finished, which takes at most a second more.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.spent_seconds = 0.0

    def require(self) -> None:
        """Raise BudgetSpent if nothing is left."""
        if self.spent_seconds >= self.seconds:
            raise BudgetSpent(f"the CPU budget of {self.seconds:g} s is spent")

    def charge(self, seconds: float) -> None:
        """Count what an evaluation took."""
        self.spent_seconds += seconds
