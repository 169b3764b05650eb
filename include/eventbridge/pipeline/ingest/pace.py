"""How many events a batch may take so that most of it is delivered within the target duration; called by listen."""

from __future__ import annotations

import math
from datetime import datetime

import numpy as np

from eventbridge.errors import StoreError
from eventbridge.model.batch import Batch
from eventbridge.model.file_detail import LandedRange
from eventbridge.policy.batch_size import FIRST_EVENTS, paced_events
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import NO_TIME, time_at, times_of
from eventbridge.store.parquet import read_table

#: How many batches are examined; for most of them the ledger's row is enough.
_MOST_BATCHES = 10
#: A batch counts as delivered when this share of its responses is in: one slow target does not count.
_MOST = 0.8


def events_in_time(runtime: Runtime, runner: str, backlog: int = 0) -> int:
    """Return how many events the next batch may take, from the last batch that was full or exceeded the target
    duration.

    `backlog` is the number of waiting events that do not share the bus; 0 if others share it.
    """
    target = runtime.settings.batch_target_duration
    for batch in runtime.ledger.batches(limit=_MOST_BATCHES, runner=runner):
        if batch.kind != "normal" or batch.committed_at is None:
            continue
        if not batch.is_full and (batch.committed_at - batch.planned_at).total_seconds() <= target:
            continue  # small and quick: it says nothing about the time of a large one
        if (responded := _mostly_responded_at(runtime, batch)) is None:
            continue
        landed = [file.detail for file in runtime.ledger.files(batch.batch_id, "buffer")]
        events = sum(each.read for each in landed if isinstance(each, LandedRange))
        seconds = (responded - batch.planned_at).total_seconds()
        if (found := paced_events(events, seconds, target, is_full=batch.is_full, backlog=backlog)) is not None:
            return found
    return FIRST_EVENTS


def _mostly_responded_at(runtime: Runtime, batch: Batch) -> datetime | None:
    """Return when most of a batch's responses were in; None if it had none, or they are no longer kept."""
    try:
        tables = [
            read_table(runtime.store, file.path, ["settled_at"])
            for file in runtime.ledger.files(batch.batch_id, "settlement")
            if file.path is not None and batch.kept == "all"
        ]
    except StoreError:  # commit, audit and repair report it; the size of a batch does not depend on it
        return None
    found = np.concatenate([times_of(table["settled_at"]) for table in tables]) if tables else np.array([], np.int64)
    found = np.sort(found[found != NO_TIME])
    return time_at(int(found[math.ceil(_MOST * len(found)) - 1])) if len(found) else None
