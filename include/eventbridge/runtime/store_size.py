"""Measures the store for its quota: a batch when it is committed, everything once a day."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from eventbridge.model.batch import Batch
from eventbridge.model.storage import BatchSize, StoreQuota
from eventbridge.policy.watermarks import Room, quota_room
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout

log = logging.getLogger(__name__)

#: How long a full measurement is valid; batches and retention adjust it in between.
COUNT_HOLDS = timedelta(days=1)


def count_batch(runtime: Runtime, batch: Batch) -> None:
    """Measure what a batch that is about to be committed left in the store; it costs five short listings.

    Files of lost attempts are included. Without a quota of the store or of an owner, nothing is measured.
    """
    quotas = runtime.rules_of(batch).quotas.values()
    if runtime.settings.store_max_size is None and all(each.stored_bytes is None for each in quotas):
        return
    at, name = batch.planned_at, batch.batch_id
    archive = runtime.store.size(layout.archive_of_batch(batch.bus, at, name)) if batch.bus else 0
    deliveries = sum(runtime.store.size(prefix) for prefix in layout.files_of_batch(at, name))
    letters = runtime.store.size(layout.dead_letters_of_batch(at, name))
    runtime.ledger.add_batch_size(batch, BatchSize(deliveries, archive, letters))


def is_count_due(runtime: Runtime, now: datetime) -> bool:
    """Return whether the whole store must be measured: it has a quota, which stopped ingestion, or a day has passed."""
    if runtime.settings.store_max_size is None:
        return False
    counted_at, stop = runtime.ledger.store_count().counted_at, runtime.ledger.ingestion_stop()
    is_stopped = stop is not None and stop.cause == "quota"
    return counted_at is None or is_stopped or now - counted_at >= COUNT_HOLDS


def count_store(runtime: Runtime) -> int:
    """Measure all files of the store, and record the part that batches do not account for; return the bytes.

    Files written meanwhile may be counted twice until the next measurement, and are never left out.
    """
    counted = sum(each.size for each in runtime.ledger.store_count().sizes if each.area != "other")
    measured = runtime.store.size("")
    runtime.ledger.set_store_count(measured - counted, runtime.ledger.now())
    log.info("the store %s holds %s bytes", runtime.store.uri, f"{measured:,}")
    return measured


def store_quota(runtime: Runtime) -> StoreQuota | None:
    """Return the quota of the store and the bytes counted so far; None without a quota. It measures nothing."""
    quota, resume = runtime.settings.store_max_size, runtime.settings.store_resume_size
    if quota is None or resume is None:
        return None
    found = runtime.ledger.store_count()
    return StoreQuota(found.total, quota, resume, found.counted_at)


def room_in_quota(runtime: Runtime) -> Room | None:
    """Return the free part of the quota; None without a quota. A store that was never measured is measured now."""
    found = store_quota(runtime)
    if found is not None and found.counted_at is None:
        count_store(runtime)
        found = store_quota(runtime)
    return None if found is None else quota_room(found.held, found.quota, found.resume)
