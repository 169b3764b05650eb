"""How many events a batch may take so that most of it is delivered in the target duration; called by listen."""

from __future__ import annotations

import math
from datetime import datetime

import numpy as np

from eventbridge.decision.batch_size import FIRST_EVENTS, paced_events
from eventbridge.errors import StoreError
from eventbridge.model.batch import Batch
from eventbridge.model.landed import LandedRange
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.store.columns import NO_TIME, time_at, times_of
from eventbridge.store.parquet import read_table

#: Batches that are looked at; of most of them the ledger's row says enough.
_MOST_BATCHES = 10
#: A batch is as good as delivered when so much of what was responded to is: one slow target does not count.
_MOST = 0.8


def events_in_time(runtime: Runtime, runner: str, backlog: int = 0) -> int:
    """Return how many events the next batch may take, by the last one that was full or took longer than it should.

    `backlog` is how many wait that may have the bus for themselves; 0 where others share it.
    """
    target = runtime.settings.batch_target_duration
    for batch in runtime.ledger.batches(limit=_MOST_BATCHES, runner=runner):
        if batch.kind != "normal" or batch.committed_at is None:
            continue
        if not batch.is_full and (batch.committed_at - batch.planned_at).total_seconds() <= target:
            continue  # small and quick: it says nothing of what a large one takes
        if (responded := _mostly_responded_at(runtime, batch)) is None:
            continue
        landed = [file.detail for file in runtime.ledger.files(batch.batch_id, "buffer")]
        events = sum(each.read for each in landed if isinstance(each, LandedRange))
        seconds = (responded - batch.planned_at).total_seconds()
        if (found := paced_events(events, seconds, target, is_full=batch.is_full, backlog=backlog)) is not None:
            return found
    return FIRST_EVENTS


def _mostly_responded_at(runtime: Runtime, batch: Batch) -> datetime | None:
    """Return when most of a batch's responses were there; None: it had none, or they are not kept any more."""
    try:
        tables = [
            read_table(runtime.store, file.path, ["settled_at"])
            for file in runtime.ledger.files(batch.batch_id, "settlement")
            if file.path is not None and batch.kept == "all"
        ]
    except StoreError:  # commit, audit and repair tell of it; how large a batch is does not hang on it
        return None
    found = np.concatenate([times_of(table["settled_at"]) for table in tables]) if tables else np.array([], np.int64)
    found = np.sort(found[found != NO_TIME])
    return time_at(int(found[math.ceil(_MOST * len(found)) - 1])) if len(found) else None
