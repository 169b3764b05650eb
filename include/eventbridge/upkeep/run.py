"""Holds the state of one run of retention: its time, whether it may change anything, and its result."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from eventbridge.errors import StoreError
from eventbridge.model.storage import BatchGroup, Kept
from eventbridge.policy.retention import LEAST_AGE, Retention
from eventbridge.progress import Progress, unreported
from eventbridge.rules import Bus, RuleSet
from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)


@dataclass
class Maintained:
    """The data that a run removed, or would remove in a dry run; `finished` is True if no work is left.

    `batches` counts pruned batches by part; `kept` counts, by reason, data that stays past its retention. `files`
    includes files of no batch; `lost_files` counts orphaned files, which have no ledger row, and `compacted` those that
    were compacted. `store_bytes` is the size of the store, if it has a quota and was measured. `tables` counts tables
    of targets that were maintained.
    """

    dry_run: bool = False
    batches: Counter[Kept] = field(default_factory=Counter)
    files: int = 0
    lost_files: int = 0
    compacted: int = 0
    rows: int = 0
    rule_changes: int = 0
    requests: int = 0
    messages: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    finished: bool = True
    store_bytes: int | None = None
    tables: int = 0


class RetentionRun:
    """The shared state of a run's parts."""

    def __init__(self, runtime: Runtime, seconds: float, *, dry_run: bool, progress: Progress = unreported) -> None:
        self.runtime = runtime
        self.now: datetime = runtime.ledger.now()
        self.dry_run = dry_run
        self.done = Maintained(dry_run=dry_run)
        self._until = time.monotonic() + seconds
        self._progressed = False
        self._progress = progress

    def progressed(self) -> None:
        """Record that some work was done: from then on, the run ends when its time is over."""
        self._progressed = True
        self._report()

    def is_over(self) -> bool:
        """Return whether to leave further work to the next run; False until some work was done."""
        over = self._progressed and time.monotonic() >= self._until
        if over:
            self.done.finished = False
        return over

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files from the store, unless it is a dry run, and count them."""
        if paths and not self.dry_run:
            self.runtime.store.delete_all(paths)
        self.done.files += len(paths)
        self._report()

    def _report(self) -> None:
        self._progress(self.done.files + self.done.rows + self.done.messages.total(), None)


class Retentions:
    """The retention of each group of batches, which rule files and settings determine."""

    def __init__(self, runtime: Runtime, now: datetime) -> None:
        self._runtime = runtime
        self._now = now
        self._rules = runtime.rule_set()
        self._runners = self._rules.runners()
        self.buses: tuple[Bus, ...] = tuple(self._rules.buses.values())

    def group_retention(self, kept: Kept, group: BatchGroup) -> Retention | None:
        """Return the retention of a group with batches in this state, or None if it is currently unknown."""
        bus = _bus_of(self._rules, self._runners, group) or self._last_bus_of(kept, group)
        return None if bus is None else self.bus_retention(bus)

    def bus_retention(self, bus: Bus) -> Retention:
        """Return the retention of a bus."""
        settings = self._runtime.settings
        return Retention.from_ages(
            archive=timedelta(seconds=bus.retention_seconds),
            deliveries=timedelta(seconds=settings.retention_deliveries),
            dead_letters=timedelta(seconds=settings.retention_dead_letters),
            manifests=timedelta(seconds=settings.retention_manifests),
        )

    @property
    def history_retention(self) -> timedelta:
        """Return the retention of history: rule changes, operators' actions, and ended replays and redrives."""
        return max(LEAST_AGE, timedelta(seconds=self._runtime.settings.retention_manifests))

    @property
    def longest_of_files(self) -> timedelta:
        """Return the age at which only the manifest of a batch, and files that something still needs, are left."""
        return max((self.bus_retention(bus).dead_letters for bus in self.buses), default=LEAST_AGE)

    def shortest(self, kept: Kept) -> timedelta:
        """Return the age below which no batch loses these records."""
        return min((self.bus_retention(bus).ends(kept, "normal") for bus in self.buses), default=LEAST_AGE)

    def _last_bus_of(self, kept: Kept, group: BatchGroup) -> Bus | None:
        last = self._runtime.ledger.retention.expired(kept, group, self._now - LEAST_AGE, limit=1)
        if not last:
            return None
        try:
            rules = self._runtime.rules_of(last[0])
        except StoreError as error:
            log.warning("the batches of runner %s are kept, as their retention is unknown: %s", group.runner, error)
            return None
        return _bus_of(rules, rules.runners(), group)


def _bus_of(rules: RuleSet, runners: dict[str, str], group: BatchGroup) -> Bus | None:
    return rules.buses.get(group.bus or runners.get(group.runner, ""))
