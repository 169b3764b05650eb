"""Whether what a target answered is durable there, and what becomes of an answer if it is not."""

from __future__ import annotations

from eventbridge.errors import InfrastructureError
from eventbridge.model.answer import Answer
from eventbridge.targets.protocol import Target

#: No answer waits for its flush any longer when the next comes, however many may wait for one.
_SECONDS = 1.0


def must_flush(target: Target, waiting: int, first: Answer, last: Answer) -> bool:
    """Return whether so many answers, of which these came first and last, have waited for a flush long enough."""
    if waiting >= target.flush_every:
        return True
    return (last.started_at - first.started_at).total_seconds() + last.duration_ms / 1000 >= _SECONDS


def flush(target: Target) -> str | None:
    """Return once all that a target answered is durable there, or what was lost."""
    try:
        target.flush()
    except InfrastructureError as error:
        return str(error)
    return None


def not_flushed(answer: Answer, error: str) -> Answer:
    """Return what becomes of an answer that was lost with its target's buffer."""
    return answer._replace(accepted=False, code=None, error_class="FlushFailed", error=error)
