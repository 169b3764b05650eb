"""Makes the responses of a target durable, and marks those that were lost with its buffer."""

from __future__ import annotations

from eventbridge.delivery.steps import SharedFlush, Steps
from eventbridge.errors import InfrastructureError
from eventbridge.model.outcome import Response
from eventbridge.targets.protocol import Target, shares_flush

#: Maximum time that a response waits for its flush, checked when the next response comes.
_SECONDS = 1.0
#: A flush of more responses is not shared: no other target should have to wait for it.
_MOST_SHARED = 1_000


def must_flush(target: Target, waiting: int, first: Response, last: Response) -> bool:
    """Return whether the responses that wait for a flush are so many, or have waited so long, that it is due."""
    if waiting >= target.flush_every:
        return True
    return (last.started_at - first.started_at).total_seconds() + last.duration_ms / 1000 >= _SECONDS


def flush(target: Target) -> str | None:
    """Make everything that a target responded to durable; return the error if something was lost."""
    try:
        target.flush()
    except InfrastructureError as error:
        return str(error)
    return None


def flush_in_turn(target: Target, responses: int) -> Steps[str | None]:
    """Do as `flush` does for `responses` responses; it may wait for other targets on the same disk."""
    if responses > _MOST_SHARED or not shares_flush(target) or target.disk is None:
        return flush(target)
    shared = SharedFlush(target)
    yield shared
    return shared.result()


def not_flushed(response: Response, error: str) -> Response:
    """Return the response of a delivery that was lost with its target's buffer."""
    return response._replace(accepted=False, code=None, error_class="FlushFailed", error=error)
