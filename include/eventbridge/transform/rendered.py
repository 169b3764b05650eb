"""Defines the additional input of a transform, its output, and the protocol of renderers."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple, Protocol

from eventbridge.errors import BudgetSpent, TransformFailed
from eventbridge.event.cloudevent import Event

#: The maximum size of a transform's output, in bytes. An event that is sent unchanged need only meet the limit for
#: events.
MAXIMUM_BYTES: Final = 8 << 20


def too_large(min_bytes: int) -> TransformFailed:
    """Return the failure for a payload of at least `min_bytes` bytes. The size may be known before the payload is
    complete."""
    return TransformFailed(f"the payload has {min_bytes:,} bytes or more; the maximum is {MAXIMUM_BYTES:,}")


class Scope(NamedTuple):
    """The input of a transform other than the event; `ingested_at` (aware) is when the event arrived on the bus.

    The CPU time of a JSONata expression is charged to `budget`; if it is None, the time is not limited.
    """

    rule: str
    bus: str
    target: str
    delivery_id: str
    ingested_at: datetime
    budget: Budget | None = None


class Rendered(NamedTuple):
    """The output for the target: the body, its media type (empty if none) and further headers (None if none)."""

    payload: bytes
    content_type: str
    headers: dict[str, str] | None = None


class Renderer(Protocol):
    """The compiled transform of a target; threads may share it, because it keeps no state between events."""

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the output for the target. Raises TransformFailed with the reason.

        Raises BudgetSpent without evaluating anything if the scope's budget is spent.
        """


class SizeLimitedRenderer:
    """A renderer that returns the output of another one unless it is too large."""

    def __init__(self, inner: Renderer) -> None:
        self._inner = inner

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the output of the other renderer. Raises its exceptions, and TransformFailed above MAXIMUM_BYTES."""
        rendered = self._inner.render(event, scope)
        if len(rendered.payload) > MAXIMUM_BYTES:
            raise too_large(len(rendered.payload))
        return rendered


class Budget:
    """A budget of CPU seconds, for one rule in one batch or in the part of a batch that one worker routes.

    Once it is spent, no evaluation starts; a running one finishes, which takes a second at most.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.spent_seconds = 0.0

    def require(self) -> None:
        """Raise BudgetSpent if the budget is spent."""
        if self.spent_seconds >= self.seconds:
            raise BudgetSpent(f"the CPU budget of {self.seconds:g} s is spent")

    def charge(self, seconds: float) -> None:
        """Add the CPU time of an evaluation."""
        self.spent_seconds += seconds
