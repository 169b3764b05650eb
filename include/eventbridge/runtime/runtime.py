"""Everything a stage works with, in one frozen value: settings, ledger, store, connections, clock, telemetry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from eventbridge.config.connection import Connection
from eventbridge.config.settings import Settings
from eventbridge.errors import NotFoundError, RuleFileError, StoreError, StoreFileDamaged, StoreFileMissing
from eventbridge.files import close_to_others, make_private_folder
from eventbridge.ledger import Ledger
from eventbridge.model.batch import Batch
from eventbridge.rules import Bus, RuleSet
from eventbridge.rules import Target as TargetRule
from eventbridge.rules.operations_bus import OPERATIONS_BUS
from eventbridge.rules.types import ChunkSizes
from eventbridge.runtime.bucket_rules import load_rule_files
from eventbridge.sources.open import open_log, open_publisher, open_queue
from eventbridge.sources.protocol import LogSource, Publisher
from eventbridge.store.open import open_store
from eventbridge.store.protocol import Store
from eventbridge.store.rule_sets import freeze_rules, frozen_rules
from eventbridge.telemetry.protocol import NO_TELEMETRY, Telemetry

if TYPE_CHECKING:
    from eventbridge.targets.protocol import Target


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Runtime:
    """The objects that every stage uses; one per process, closed by the caller that opened it.

    `owners`: those whose rules and buses `rule_set` shows; None: all.
    """

    settings: Settings
    ledger: Ledger
    store: Store
    connections: Callable[[str], Connection]
    clock: Callable[[], datetime]
    telemetry: Telemetry = NO_TELEMETRY
    owners: frozenset[str] | None = None

    @classmethod
    def open(
        cls,
        settings: Settings,
        connections: Callable[[str], Connection],
        clock: Callable[[], datetime] | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> Runtime:
        """Open the ledger and the store that the settings name; raises InfrastructureError if one is unreachable.

        `clock` None: the ledger's, which all hosts share, because other hosts compare times that a push computes.
        """
        _make_home(settings.home)
        ledger = Ledger.open(settings.ledger_url, clock=clock)
        store = open_store(settings.store_uri, connections)
        return cls(settings, ledger, store, connections, clock or ledger.now, telemetry)

    def apart(self) -> Runtime:
        """Return a copy with its own connection to the ledger, which the caller closes."""
        ledger = Ledger.open(self.settings.ledger_url, clock=self.clock)
        return replace(self, ledger=ledger)

    def seen_by(self, owners: Collection[str] | None) -> Runtime:
        """Return a copy for a user who is limited to `owners`; None: not limited."""
        return replace(self, owners=None if owners is None else frozenset(owners))

    def close(self) -> None:
        """Close the ledger's connections, and send what the telemetry has buffered."""
        self.ledger.close()
        self.telemetry.close()

    def rule_set(self) -> RuleSet:
        """Return the current rules or, if the files have errors, the last valid ones; see `in_force`.

        Where rules are published (EVENTBRIDGE_RULES_FROM), the published ones, whatever files this host has;
        NotFoundError if there are none. Raises RuleFileError with every error if no files were ever valid. For a user
        who is limited to owners, only their rules and buses.
        """
        found = self._rules_of_all_owners()
        return found if self.owners is None else found.of_owners(self.owners)

    def _rules_of_all_owners(self) -> RuleSet:
        if self.settings.rules_from == "published":
            return self.in_force(self._published_rules())
        try:
            return self.in_force(self.rule_files())
        except RuleFileError:
            known = self.ledger.rules.in_force()
            if known is None:
                raise
            return self.in_force(frozen_rules(self.store, known.rule_set))

    def operations_bus(self) -> Bus:
        """Return the bus `eventbridge`: from the rules in force, else the embedded one of that name.

        Every stage may publish operational events: reading all of the current files for that would cost by the number
        of rules.
        """
        try:
            return self._last_rules().buses.get(OPERATIONS_BUS.name, OPERATIONS_BUS)
        except (RuleFileError, NotFoundError):  # no rule files were ever valid
            return OPERATIONS_BUS

    def _last_rules(self) -> RuleSet:
        """Return the rules in force, as they were frozen; today's if there are none or their file is missing."""
        known = self.ledger.rules.in_force()
        if known is not None:
            with suppress(StoreError):
                return frozen_rules(self.store, known.rule_set)
        return self._rules_of_all_owners()

    def _published_rules(self) -> RuleSet:
        known = self.ledger.rules.in_force()
        if known is None:
            raise NotFoundError(
                "No rules are published yet. Run `eventbridge rules publish` on the host that has the rule files."
            )
        try:
            return frozen_rules(self.store, known.rule_set)
        except (StoreFileMissing, StoreFileDamaged) as error:
            raise type(error)(
                f"{error} Or run `eventbridge rules publish` on the host that has the rule files: it is then recreated."
            ) from error

    def rule_files(self) -> RuleSet:
        """Return the rules in the current files; raises RuleFileError with every error in them."""
        folder, cache = self.settings.rules_folder, self.settings.rule_cache
        return load_rule_files(folder, self.connections, cache=cache)

    def in_force(self, rules: RuleSet) -> RuleSet:
        """Return rules as batches take them: without those that operators disabled."""
        return rules.disabling(self.ledger.overrides.in_effect().disabled_rules())

    def rules_of(self, batch: Batch) -> RuleSet:
        """Return the rule set that a batch is pinned to.

        A frozen file that is lost or damaged is written again if the current rules are the same; otherwise raises
        StoreError.
        """
        try:
            return frozen_rules(self.store, batch.rule_set)
        except (StoreFileMissing, StoreFileDamaged) as error:
            if not self._freeze_again(batch):
                raise type(error)(
                    f"{error} Or put the rule files back as they were when batch {batch.batch_id} was planned: "
                    "it is then recreated."
                ) from error
        return frozen_rules(self.store, batch.rule_set)

    def _freeze_again(self, batch: Batch) -> bool:
        try:
            today = self._rules_of_all_owners()
        except RuleFileError:
            return False
        for rules in (today.for_runner(batch.runner), today):
            if rules.hash == batch.rule_set:
                log.warning("the rule set of batch %s was lost or damaged, and is written again", batch.batch_id)
                freeze_rules(self.store, rules, over=True)
                return True
        return False

    @property
    def chunk_sizes(self) -> ChunkSizes:
        """Return the maximum chunk sizes."""
        return ChunkSizes(self.settings.chunk_max_deliveries, self.settings.chunk_max_size)

    def open_source(self, bus: Bus) -> LogSource:
        """Open the bus to read from; the caller closes it. A bus of queues is read through its inbox."""
        if not bus.source.is_queue:
            return open_log(bus, self.settings, self.connections, self.clock)
        from eventbridge.runtime.inbox import Inbox  # few buses are queues

        sources = {
            topic: open_queue(bus, topic, self.settings, self.connections, self.clock) for topic in bus.source.topics
        }
        return Inbox(bus.name, sources, self.ledger, self.store)

    def open_publisher(self, bus: Bus) -> Publisher:
        """Open the bus to publish to; the caller closes it. Raises UserError if it can only be read."""
        return open_publisher(bus, self.settings, self.connections, self.clock)

    def open_target(
        self, rule: str, target: TargetRule, connections: Callable[[str], Connection] | None = None
    ) -> Target:
        """Open one target of a rule for one push task; the caller closes it. `connections` None: the runtime's."""
        from eventbridge.targets.open import open_target  # its clients cost 0.3 CPU-seconds, and only push sends

        settings = self.settings
        found = connections or self.connections
        return open_target(rule, target, found, self.clock, settings.allow_addresses, settings.target_locations)


def _make_home(home: Path) -> None:
    try:
        make_private_folder(home)
        close_to_others(home)
    except OSError as error:
        raise StoreError(
            f"Cannot make the folder {home}: {error.strerror}. Set EVENTBRIDGE_HOME to another folder."
        ) from None
