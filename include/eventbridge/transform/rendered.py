"""The additional input of a transform, its output, and the protocol of renderers."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple, Protocol

from eventbridge.errors import BudgetSpent, TransformFailed
from eventbridge.event.cloudevent import Event

#: The maximum size of a transform's output; an event that is sent unchanged has the limit of events.
MAXIMUM_BYTES: Final = 8 << 20


def too_large(min_bytes: int) -> TransformFailed:
    """Return the failure of a payload of at least this size; it need not have been built."""
    return TransformFailed(f"the payload has {min_bytes:,} bytes or more; the maximum is {MAXIMUM_BYTES:,}")


class Scope(NamedTuple):
    """The values of a delivery besides its event; `ingested_at` (aware) is when the event arrived on the bus.

    `budget` is charged with the CPU time of an expensive transform; without a budget, it is not counted.
    """

    rule: str
    bus: str
    target: str
    delivery_id: str
    ingested_at: datetime
    budget: Budget | None = None


class Rendered(NamedTuple):
    """The output for the target: body, its media type (empty if none), further headers (None if none)."""

    payload: bytes
    content_type: str
    headers: dict[str, str] | None = None


class Renderer(Protocol):
    """The compiled transform of one target of one rule; it keeps no state between events, so threads may share it."""

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the output for the target; raises TransformFailed with the reason.

        Raises BudgetSpent, with nothing evaluated, if the scope's budget is used up.
        """


class SizeLimitedRenderer:
    """The output of another renderer, unless it is too large."""

    def __init__(self, inner: Renderer) -> None:
        self._inner = inner

    def render(self, event: Event, scope: Scope) -> Rendered:
        """Return the output of the other renderer; raises TransformFailed for more than MAXIMUM_BYTES, and the
        renderer's exceptions."""
        rendered = self._inner.render(event, scope)
        if len(rendered.payload) > MAXIMUM_BYTES:
            raise too_large(len(rendered.payload))
        return rendered


class Budget:
    """Counts CPU seconds; one per rule and batch, or per share of a batch that one worker routes.

    Once it is spent, nothing more is evaluated; the current evaluation finishes, which takes at most a second more.
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
