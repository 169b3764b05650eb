"""Whether what a target responded is durable there, and what becomes of a response if it is not."""

from __future__ import annotations

from eventbridge.errors import InfrastructureError
from eventbridge.model.response import Response
from eventbridge.stages.push.steps import SharedFlush, Steps
from eventbridge.targets.protocol import Target, shares_flush

#: No response waits for its flush any longer when the next comes, however many may wait for one.
_SECONDS = 1.0
#: A flush of more responses is not shared: it takes so long that nobody else should have to wait for it.
_MOST_SHARED = 1_000


def must_flush(target: Target, waiting: int, first: Response, last: Response) -> bool:
    """Return whether so many responses, of which these came first and last, have waited for a flush long enough."""
    if waiting >= target.flush_every:
        return True
    return (last.started_at - first.started_at).total_seconds() + last.duration_ms / 1000 >= _SECONDS


def flush(target: Target) -> str | None:
    """Return once all that a target responded is durable there, or what was lost."""
    try:
        target.flush()
    except InfrastructureError as error:
        return str(error)
    return None


def flush_in_turn(target: Target, responses: int) -> Steps[str | None]:
    """Do as `flush` does, for so many responses; it may wait for other targets of the same disk."""
    if responses > _MOST_SHARED or not shares_flush(target) or target.disk is None:
        return flush(target)
    shared = SharedFlush(target)
    yield shared
    return shared.result()


def not_flushed(response: Response, error: str) -> Response:
    """Return what becomes of a response that was lost with its target's buffer."""
    return response._replace(accepted=False, code=None, error_class="FlushFailed", error=error)
