"""Explains why an event was, or was not, delivered, for times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

from eventbridge.model.why import Why
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.time_range import time_range
from eventbridge.views.trace.explain import why


def why_between(runtime: Runtime, event_id: str, bus: str | None, since: str | None, until: str | None) -> Why:
    """Return all records of the messages with an id; times are written as in `time_range`, None: any.

    Raises UserError for an invalid time or id, NotFoundError if there is no such message.
    """
    if since is None and until is None:
        return why(runtime, event_id, bus=bus)
    first, last = time_range(runtime.clock(), since or datetime(1970, 1, 1, tzinfo=UTC).isoformat(), until)
    return why(runtime, event_id, bus=bus, since=first, until=last if until is not None else None)
