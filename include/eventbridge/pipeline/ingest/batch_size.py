"""Decides how many events the next batch may take so that its deliveries fit its chunks and the target duration."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime

import numpy as np

from eventbridge.errors import StoreError
from eventbridge.model.batch import Batch
from eventbridge.model.file_detail import LandedRange
from eventbridge.policy.batch_size import (
    FIRST_EVENTS,
    FanOut,
    Part,
    events_handed_out,
    events_within,
    paced_events,
    part_of_chunks,
)
from eventbridge.policy.chunking import PoolSlots, chunks_for
from eventbridge.rules import RuleSet
from eventbridge.rules.model import PRIORITY_POOLS
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import NO_TIME, time_at, times_of
from eventbridge.store.parquet import read_table

#: Past batches are examined until they have _ENOUGH_EVENTS events, because all or none of a few events may match. At
#: most _MAX_BATCHES are examined.
_MAX_BATCHES = 10
_ENOUGH_EVENTS = 1_000


def max_events(runtime: Runtime, runner: str, handed_out: int | None, backlog: int = 0) -> int:
    """Return how many events the next batch may take; at most `handed_out`, unless that is None.

    `backlog` is the number of waiting events if the bus has a single topic, else 0.
    """
    settings = runtime.settings
    events = min(settings.batch_max_events, events_in_time(runtime, runner, backlog))
    events = events if handed_out is None else min(handed_out, events)
    return events_within(events, settings.batch_max_size, _mean_bytes(runtime, runner))


def _mean_bytes(runtime: Runtime, runner: str) -> float | None:
    """Return the mean size, in bytes, of a message in the runner's last landed batch."""
    for batch in runtime.ledger.batches.find(limit=10, runner=runner):
        files = runtime.ledger.files.list_for_batch(batch.batch_id, "buffer") if batch.kind == "normal" else []
        landed = [file.detail for file in files if isinstance(file.detail, LandedRange)]
        if read := sum(each.read for each in landed):
            return sum(each.size for each in landed) / read
    return None


def events_to_hand_out(
    runtime: Runtime, runner: str, rules: RuleSet, pools: Mapping[str, PoolSlots] | None
) -> int | None:
    """Return how many events a batch may take so that all its deliveries get a chunk; None without an estimate.

    A rule's own pool does not limit the batch: deliveries beyond its capacity go to retry batches, where they delay no
    other rule. A shared pool without a free slot counts as having one. A closed pool limits nothing either, because its
    deliveries go on hold.
    """
    events = 0
    parts: list[Part] = []
    for batch in runtime.ledger.batches.find(limit=_MAX_BATCHES, runner=runner):
        if batch.kind == "normal" and batch.state == "committed" and events < _ENOUGH_EVENTS:
            landed = [file.detail for file in runtime.ledger.files.list_for_batch(batch.batch_id, "buffer")]
            events += sum(each.read for each in landed if isinstance(each, LandedRange))
            parts += _parts(runtime, batch, rules)
    most = runtime.settings.batch_max_chunks
    capacity = {
        name: chunks_for(pool._replace(free=max(1, pool.free)), most)
        for name, pool in (pools or {}).items()
        if name in PRIORITY_POOLS and pool.slots
    }
    return events_handed_out(FanOut.from_parts(events, parts), capacity, most, runtime.settings.batch_max_deliveries)


def _parts(runtime: Runtime, batch: Batch, rules: RuleSet) -> Iterator[Part]:
    """Yield the deliveries that a batch handed out, and those that it withheld from targets that are ok."""
    for total in runtime.ledger.chunks.totals(batch.batch_id):
        yield part_of_chunks(total, runtime.chunk_sizes.small)
    withheld = runtime.ledger.chunks.withheld_pieces(batch.batch_id)
    statuses = runtime.ledger.targets.statuses() if withheld else {}
    for pool, piece in withheld:
        status, rule = statuses.get((piece.rule, piece.target)), rules.rules.get(piece.rule)
        target = rule.targets.get(piece.target) if rule is not None else None
        if target is not None and (status is None or status.state == "ok"):
            most = runtime.chunk_sizes.size_of(target)
            yield Part(pool, piece.count, max(piece.count / most.deliveries, piece.size / most.size))


#: A batch counts as delivered once this share of its responses has arrived, so that a slow target does not determine
#: the estimate.
_MOST = 0.8


def events_in_time(runtime: Runtime, runner: str, backlog: int = 0) -> int:
    """Return how many events the next batch may take so that it lasts for the target duration.

    The estimate is based on the last batch that was full or exceeded that duration. `backlog` is the number of waiting
    events if the bus has a single topic, else 0.
    """
    target = runtime.settings.batch_target_duration
    for batch in runtime.ledger.batches.find(limit=_MAX_BATCHES, runner=runner):
        if batch.kind != "normal" or batch.committed_at is None:
            continue
        if not batch.is_full and (batch.committed_at - batch.planned_at).total_seconds() <= target:
            continue  # a small and quick batch does not predict the time of a large one
        if (responded := _mostly_responded_at(runtime, batch)) is None:
            continue
        landed = [file.detail for file in runtime.ledger.files.list_for_batch(batch.batch_id, "buffer")]
        events = sum(each.read for each in landed if isinstance(each, LandedRange))
        seconds = (responded - batch.planned_at).total_seconds()
        if (found := paced_events(events, seconds, target, is_full=batch.is_full, backlog=backlog)) is not None:
            return found
    return FIRST_EVENTS


def _mostly_responded_at(runtime: Runtime, batch: Batch) -> datetime | None:
    """Return when most of a batch's responses had arrived; None if it had none, or if its records were removed."""
    try:
        tables = [
            read_table(runtime.store, file.path, ["settled_at"])
            for file in runtime.ledger.files.list_for_batch(batch.batch_id, "settlement")
            if file.path is not None and batch.kept == "all"
        ]
    except StoreError:  # commit, audit and repair report the error; an estimate must not fail because of it
        return None
    found = np.concatenate([times_of(table["settled_at"]) for table in tables]) if tables else np.array([], np.int64)
    found = np.sort(found[found != NO_TIME])
    return time_at(int(found[math.ceil(_MOST * len(found)) - 1])) if len(found) else None
