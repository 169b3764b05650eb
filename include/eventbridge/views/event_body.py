"""Reads an event from the archive by its id."""

from __future__ import annotations

from eventbridge.errors import StoreError
from eventbridge.event.plain import text
from eventbridge.model import rowset
from eventbridge.model.why import EventResult, Why
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_rows
from eventbridge.views.trace.explain import landed_bodies, why


def body_of_event(runtime: Runtime, event_id: str) -> str | None:
    """Return the newest event with an id as it was archived; None if it cannot be read.

    Rules are not evaluated: there may be thousands. If there is no such event, it raises as `why` does.
    """
    landed = landed_bodies(runtime, event_id)
    return landed[0] if landed else newest_body(runtime, why(runtime, event_id, most_unmatched=0))


def newest_body(runtime: Runtime, found: Why) -> str | None:
    """Return the newest of the found events as it was archived; None if it cannot be read."""
    return next((body for each in found.events if (body := archived_body(runtime, each)) is not None), None)


def archived_body(runtime: Runtime, event: EventResult) -> str | None:
    """Return a found message as it was archived; None if it is past its retention or cannot be read."""
    for landing in event.landings:
        if landing.archived:
            try:
                table = read_rows(runtime.store, landing.file, rowset.encode([landing.row]), ["body"])
            except StoreError:  # `why` reported the file
                continue
            return text(table["body"][0].as_py())
    return None
