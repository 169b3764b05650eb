"""How long each bus' batches are kept: by today's rules or, for a bus that left them, by those of its last batch."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from eventbridge.decision.retention import LEAST_AGE, Retention
from eventbridge.errors import StoreError
from eventbridge.model.retention import BatchGroup, Kept
from eventbridge.rule import Bus, RuleSet
from eventbridge.stages.runtime.runtime import Runtime

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
        """Return the retention of a group that has batches of which this is kept; None: it cannot be told now."""
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
        """Return how long it is told what was: changes of rules, replays and redrives that ended."""
        return max(LEAST_AGE, timedelta(seconds=self._runtime.settings.retention_manifests))

    @property
    def longest_of_files(self) -> timedelta:
        """Return the age at which nothing is left of a batch's files that nobody needs, but its manifest."""
        return max((self.of_bus(bus).dead_letters for bus in self.buses), default=LEAST_AGE)

    def _last_bus_of(self, kept: Kept, group: BatchGroup) -> Bus | None:
        last = self._runtime.ledger.expired_batches(kept, group, self._now - LEAST_AGE, limit=1)
        if not last:
            return None
        try:
            rules = self._runtime.rules_of(last[0])
        except StoreError as error:
            log.warning("what runner %s delivered is kept, as its retention cannot be told: %s", group.runner, error)
            return None
        return _bus_of(rules, rules.runners(), group)


def _bus_of(rules: RuleSet, runners: dict[str, str], group: BatchGroup) -> Bus | None:
    return rules.buses.get(group.bus or runners.get(group.runner, ""))
