"""Everything a stage works with, in one frozen value: settings, ledger, store, connections, clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from eventbridge.connection import Connection
from eventbridge.errors import StoreError
from eventbridge.ledger import Ledger
from eventbridge.ledger.records import Batch
from eventbridge.rule import Bus, RuleSet, load_rules
from eventbridge.rule import Target as TargetRule
from eventbridge.settings import Settings
from eventbridge.sources.open import open_source
from eventbridge.sources.protocol import LogSource
from eventbridge.stages.frozen_rules import frozen_rules
from eventbridge.store.open import open_store
from eventbridge.store.protocol import Store
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Target


def utc_now() -> datetime:
    """Return the present moment, aware, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Workplace:
    """What every stage is given; one per process, closed by who opened it."""

    settings: Settings
    ledger: Ledger
    store: Store
    connections: Callable[[str], Connection]
    clock: Callable[[], datetime] = utc_now

    @classmethod
    def open(
        cls,
        settings: Settings,
        connections: Callable[[str], Connection],
        clock: Callable[[], datetime] = utc_now,
    ) -> Workplace:
        """Open the ledger and the store that the settings name; raises InfrastructureError if one is unreachable."""
        _make_home(settings.home)
        ledger = Ledger.open(settings.ledger_url, clock=clock)
        return cls(settings, ledger, open_store(settings.store_uri, connections), connections, clock)

    def close(self) -> None:
        """Let go of the ledger's connections."""
        self.ledger.close()

    def rule_set(self) -> RuleSet:
        """Return what today's rule files say; raises RuleFileError with every mistake in them."""
        return load_rules(Path(self.settings.rules_folder), cache=self.settings.rule_cache)

    def rules_of(self, batch: Batch) -> RuleSet:
        """Return the rule set a batch is pinned to; raises StoreError if the frozen file cannot be read."""
        return frozen_rules(self.store, batch.rule_set)

    def open_source(self, bus: Bus) -> LogSource:
        """Open the bus to read from; the caller closes it."""
        return open_source(bus, self.settings, self.clock)

    def open_target(self, rule: str, target: TargetRule) -> Target:
        """Open one target of a rule for one push task; the caller closes it."""
        return open_target(rule, target, self.connections, self.clock, self.settings.allow_addresses)


def _make_home(home: Path) -> None:
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"Cannot make the folder {home}: {error.strerror}. Name another by EVENTBRIDGE_HOME."
        ) from None
