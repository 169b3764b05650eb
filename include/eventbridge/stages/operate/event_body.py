"""An event as it lies in the archive, by its id."""

from __future__ import annotations

from eventbridge.errors import StoreError
from eventbridge.event.plain import text
from eventbridge.model import rowset
from eventbridge.model.why import EventResult, Why
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.why.explain import landed_bodies, why
from eventbridge.store.parquet import read_rows


def body_of_event(runtime: Runtime, event_id: str) -> str | None:
    """Return an event as it lies in the archive, the newest of an id; None where it cannot be read.

    Rules are not asked: there may be thousands. Raises what `why` raises if there is none.
    """
    landed = landed_bodies(runtime, event_id)
    return landed[0] if landed else newest_body(runtime, why(runtime, event_id, most_unmatched=0))


def newest_body(runtime: Runtime, found: Why) -> str | None:
    """Return the newest event that was found by its id as it lies in the archive; None where it cannot be read."""
    return next((body for each in found.events if (body := archived_body(runtime, each)) is not None), None)


def archived_body(runtime: Runtime, event: EventResult) -> str | None:
    """Return what was found by its id as it lies in the archive; None: it is past its retention, or cannot be read."""
    for landing in event.landings:
        if landing.archived:
            try:
                table = read_rows(runtime.store, landing.file, rowset.encode([landing.row]), ["body"])
            except StoreError:  # `why` has told of the file
                continue
            return text(table["body"][0].as_py())
    return None
