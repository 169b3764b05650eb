"""The retention of each bus' batches: from today's rules or, for a removed bus, from the rules of its last batch."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from eventbridge.errors import StoreError
from eventbridge.model.storage import BatchGroup, Kept
from eventbridge.policy.retention import LEAST_AGE, Retention
from eventbridge.rules import Bus, RuleSet
from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)


class Retentions:
    """The retention of each group of batches, as rule files and settings say."""

    def __init__(self, runtime: Runtime, now: datetime) -> None:
        self._runtime = runtime
        self._now = now
        self._rules = runtime.rule_set()
        self._runners = self._rules.runners()
        self.buses: tuple[Bus, ...] = tuple(self._rules.buses.values())

    def of(self, kept: Kept, group: BatchGroup) -> Retention | None:
        """Return the retention of a group with batches in this state; None: it is unknown now."""
        bus = _bus_of(self._rules, self._runners, group) or self._last_bus_of(kept, group)
        return None if bus is None else self.of_bus(bus)

    def of_bus(self, bus: Bus) -> Retention:
        """Return the retention of a bus."""
        settings = self._runtime.settings
        return Retention.of(
            archive=timedelta(seconds=bus.retention_seconds),
            deliveries=timedelta(seconds=settings.retention_deliveries),
            dead_letters=timedelta(seconds=settings.retention_dead_letters),
            manifests=timedelta(seconds=settings.retention_manifests),
        )

    @property
    def of_history(self) -> timedelta:
        """Return the retention of history: changes of rules, ended replays and redrives."""
        return max(LEAST_AGE, timedelta(seconds=self._runtime.settings.retention_manifests))

    @property
    def longest_of_files(self) -> timedelta:
        """Return the age at which only the manifest of a batch, and files with a need, are left."""
        return max((self.of_bus(bus).dead_letters for bus in self.buses), default=LEAST_AGE)

    def _last_bus_of(self, kept: Kept, group: BatchGroup) -> Bus | None:
        last = self._runtime.ledger.expired_batches(kept, group, self._now - LEAST_AGE, limit=1)
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
