"""Whether what a target answered is durable there, and what becomes of an answer if it is not."""

from __future__ import annotations

from eventbridge.delivery import Answer
from eventbridge.errors import InfrastructureError
from eventbridge.targets.protocol import Target


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
