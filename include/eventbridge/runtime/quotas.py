"""Compares usage with quotas: the pending deliveries and stored bytes of owners, and the size of the store."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from eventbridge.model.batch import Batch
from eventbridge.model.storage import BatchSize, StoreQuota
from eventbridge.policy.capacity import FreeSpace, quota_space
from eventbridge.rules import Bus, RuleSet
from eventbridge.rules.model import Owner
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout

log = logging.getLogger(__name__)

#: The time for which a full measurement of the store is valid. In between, batches and retention adjust the result.
COUNT_VALIDITY = timedelta(days=1)


@dataclass(frozen=True)
class OwnerStatus:
    """An owner's current values and quotas. A quota is None if the owner has none.

    `published_per_second` is the limit for all API servers together.
    """

    owner: str
    published_per_second: float | None
    pending: int
    pending_max: int | None
    stored: int
    stored_bytes: int | None

    @property
    def full(self) -> bool:
        """Whether the owner's buses have used up its quota in the store, so that ingestion from them is stopped."""
        return self.stored_bytes is not None and self.stored >= self.stored_bytes


def owner_statuses(runtime: Runtime, rules: RuleSet) -> list[OwnerStatus]:
    """Return the status of each owner that has quotas in `rules`, sorted by name."""
    if not rules.quotas:
        return []
    pending = _pending(runtime, rules)
    return [
        OwnerStatus(
            name,
            quota.published_per_second,
            pending.get(name, 0),
            quota.pending_max,
            _stored_bytes_of(runtime, rules, name) if quota.stored_bytes is not None else 0,
            quota.stored_bytes,
        )
        for name, quota in sorted(rules.quotas.items())
    ]


def full_owners(runtime: Runtime, rules: RuleSet) -> set[str]:
    """Return the owners that have reached their maximum of pending deliveries, so that their new matches are deferred.

    `rules` are the rules of a batch, whose quotas apply. The pending deliveries of all current rules are counted.
    """
    quotas = {name: quota.pending_max for name, quota in rules.quotas.items() if quota.pending_max is not None}
    if not quotas:
        return set()
    pending = _pending(runtime, runtime.rule_set())
    return {name for name, most in quotas.items() if pending.get(name, 0) >= most}


def _stored_bytes_of(runtime: Runtime, rules: RuleSet, owner: str) -> int:
    """Return how many bytes in the store belong to measured batches of an owner's buses."""
    runners = rules.runners()
    own = {name for name, bus in rules.buses.items() if bus.owner == owner}
    sizes = runtime.ledger.store_sizes.total().sizes  # for a batch without a bus, its runner's bus counts
    return max(0, sum(each.size for each in sizes if (each.bus or runners.get(each.runner)) in own))


def storage_refusal(runtime: Runtime, rules: RuleSet, bus: Bus) -> str:
    """Return why no events are taken from a bus whose owner has used up its quota in the store, or ""."""
    quota = rules.quotas.get(bus.owner or "", Owner())
    if bus.owner is None or quota.stored_bytes is None:
        return ""
    used = _stored_bytes_of(runtime, rules, bus.owner)
    if used < quota.stored_bytes:
        return ""
    return f"the buses of {bus.owner} have {used:,} bytes in the store, and the owner's quota is {quota.stored_bytes:,}"


def _pending(runtime: Runtime, rules: RuleSet) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, count in runtime.ledger.pending.counts_by_rule().items():
        if name in rules.rules and (owner := rules.owner_of(rules.rules[name])) is not None:
            found[owner] = found.get(owner, 0) + count
    return found


def count_batch(runtime: Runtime, batch: Batch) -> None:
    """Measure the files of a batch that is about to be committed. This takes five short listings.

    Files of abandoned attempts are included. If neither the store nor an owner has a quota, nothing is measured.
    """
    quotas = runtime.rules_of(batch).quotas.values()
    if runtime.settings.store_max_size is None and all(each.stored_bytes is None for each in quotas):
        return
    at, name = batch.planned_at, batch.batch_id
    archive = runtime.store.size(layout.archive_of_batch(batch.bus, at, name)) if batch.bus else 0
    deliveries = sum(runtime.store.size(prefix) for prefix in layout.files_of_batch(at, name))
    dead_letters = runtime.store.size(layout.dead_letters_of_batch(at, name))
    runtime.ledger.store_sizes.add(batch, BatchSize(deliveries, archive, dead_letters))


def is_count_due(runtime: Runtime, now: datetime) -> bool:
    """Return whether the entire store must be measured.

    This is the case if the store has a quota, and one of these is true: it was never measured, the last measurement is
    a day old, or the quota has stopped ingestion.
    """
    if runtime.settings.store_max_size is None:
        return False
    counted_at, stop = runtime.ledger.store_sizes.total().counted_at, runtime.ledger.ingestion.current_stop()
    is_stopped = stop is not None and stop.cause == "quota"
    return counted_at is None or is_stopped or now - counted_at >= COUNT_VALIDITY


def count_store(runtime: Runtime) -> int:
    """Measure all files of the store, record how many bytes do not belong to measured batches, and return the total.

    Files that are written during the measurement may be counted twice until the next one, but are never missed.
    """
    counted = sum(each.size for each in runtime.ledger.store_sizes.total().sizes if each.area != "other")
    measured = runtime.store.size("")
    runtime.ledger.store_sizes.record_measured(measured - counted, runtime.ledger.now())
    log.info("the store %s has %s bytes", runtime.store.uri, f"{measured:,}")
    return measured


def store_quota(runtime: Runtime) -> StoreQuota | None:
    """Return the quota of the store and the bytes counted so far, or None if the store has no quota.

    Nothing is measured.
    """
    quota, resume = runtime.settings.store_max_size, runtime.settings.store_resume_size
    if quota is None or resume is None:
        return None
    found = runtime.ledger.store_sizes.total()
    return StoreQuota(found.total, quota, resume, found.counted_at)


def room_in_quota(runtime: Runtime) -> FreeSpace | None:
    """Return the free part of the store's quota, or None if the store has no quota.

    If the store was never measured, it is measured now.
    """
    found = store_quota(runtime)
    if found is not None and found.counted_at is None:
        count_store(runtime)
        found = store_quota(runtime)
    return None if found is None else quota_space(found.used, found.quota, found.resume)
