"""Bundles everything a stage works with in one frozen value: settings, ledger, store, connections, clock, telemetry.

`runtime.open` creates it, and passes in the functions that read rule files and open sources and targets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from eventbridge.config.connection import Connection
from eventbridge.config.settings import Settings
from eventbridge.errors import NotFoundError, RuleFileError, StoreError, StoreFileDamaged, StoreFileMissing
from eventbridge.ledger import Ledger
from eventbridge.model.batch import Batch
from eventbridge.rules import Bus, RuleSet
from eventbridge.rules import Target as TargetRule
from eventbridge.rules.operations_bus import OPERATIONS_BUS
from eventbridge.rules.types import ChunkSizes
from eventbridge.sources.protocol import LogSource, Publisher
from eventbridge.store.protocol import Store
from eventbridge.store.rule_sets import freeze_rules, frozen_rules
from eventbridge.telemetry.protocol import NO_TELEMETRY, Telemetry

if TYPE_CHECKING:
    from eventbridge.targets.protocol import Target

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Openers:
    """The functions that read a runtime's rule files, and open a source, a publisher or a target."""

    rule_files: Callable[[Runtime], RuleSet]
    source: Callable[[Runtime, Bus], LogSource]
    publisher: Callable[[Runtime, Bus], Publisher]
    target: Callable[[Runtime, str, TargetRule, Callable[[str], Connection]], Target]


@dataclass(frozen=True)
class Runtime:
    """The objects that every stage uses. There is one per process; the caller that opened it closes it.

    `rule_set` returns the rules and buses of `owners`, or of all owners if that is None.
    """

    settings: Settings
    ledger: Ledger
    store: Store
    connections: Callable[[str], Connection]
    clock: Callable[[], datetime]
    openers: Openers
    telemetry: Telemetry = NO_TELEMETRY
    owners: frozenset[str] | None = None

    def apart(self) -> Runtime:
        """Return a copy with its own connection to the ledger, which the caller closes."""
        ledger = Ledger.open(self.settings.ledger_url, clock=self.clock)
        return replace(self, ledger=ledger)

    def restrict_to_owners(self, owners: Collection[str] | None) -> Runtime:
        """Return a copy for a user who is limited to `owners`, or is not limited if that is None."""
        return replace(self, owners=None if owners is None else frozenset(owners))

    def close(self) -> None:
        """Close the ledger's connections, and send the buffered telemetry."""
        self.ledger.close()
        self.telemetry.close()

    def rule_set(self) -> RuleSet:
        """Return the current rules or, if the files have errors, the last valid ones; see `without_disabled`.

        If EVENTBRIDGE_RULES_FROM is `published`, it returns the published rules, whatever files this host has, and
        raises NotFoundError if there are none. Otherwise, it raises RuleFileError with every error if no files were
        ever valid. A user who is limited to owners gets only the rules and buses of these owners.
        """
        found = self._rules_of_all_owners()
        return found if self.owners is None else found.owned_by(self.owners)

    def _rules_of_all_owners(self) -> RuleSet:
        if self.settings.rules_from == "published":
            return self.without_disabled(self._published_rules())
        try:
            return self.without_disabled(self.rule_files())
        except RuleFileError:
            known = self.ledger.rules.get_in_force()
            if known is None:
                raise
            return self.without_disabled(frozen_rules(self.store, known.rule_set))

    def operations_bus(self) -> Bus:
        """Return the bus `eventbridge` from the rules in force or, if they have none, the embedded bus of that name.

        It does not read the current files, because every stage may publish operational events, and reading takes longer
        as rules are added.
        """
        try:
            return self._last_rules().buses.get(OPERATIONS_BUS.name, OPERATIONS_BUS)
        except (RuleFileError, NotFoundError):  # no rule files were ever valid
            return OPERATIONS_BUS

    def _last_rules(self) -> RuleSet:
        """Return the rules in force as they were frozen, or the current rules if none are in force or they cannot be
        read."""
        known = self.ledger.rules.get_in_force()
        if known is not None:
            with suppress(StoreError):
                return frozen_rules(self.store, known.rule_set)
        return self._rules_of_all_owners()

    def _published_rules(self) -> RuleSet:
        known = self.ledger.rules.get_in_force()
        if known is None:
            raise NotFoundError(
                "No rules are published yet. Run `eventbridge rules publish` on the host that has the rule files."
            )
        try:
            return frozen_rules(self.store, known.rule_set)
        except (StoreFileMissing, StoreFileDamaged) as error:
            raise type(error)(
                f"{error} Or run `eventbridge rules publish` on the host that has the rule files, to recreate it."
            ) from error

    def rule_files(self) -> RuleSet:
        """Return the rules in the current files; raises RuleFileError with every error in them."""
        return self.openers.rule_files(self)

    def without_disabled(self, rules: RuleSet) -> RuleSet:
        """Return rules as batches use them, in which the rules that operators have disabled are disabled."""
        return rules.disabling(self.ledger.overrides.get_effective().disabled_rules())

    def rules_of(self, batch: Batch) -> RuleSet:
        """Return the rule set to which a batch is pinned.

        If its frozen file is lost or damaged, it is written again if the current rules are the same. Raises StoreError
        otherwise.
        """
        try:
            return frozen_rules(self.store, batch.rule_set)
        except (StoreFileMissing, StoreFileDamaged) as error:
            if not self._freeze_again(batch):
                raise type(error)(
                    f"{error} Or restore the rule files of the time when batch {batch.batch_id} was planned: "
                    "the rule set is then recreated."
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
        """The maximum chunk sizes."""
        return ChunkSizes(self.settings.chunk_max_deliveries, self.settings.chunk_max_size)

    def open_source(self, bus: Bus) -> LogSource:
        """Open a bus to read from; the caller closes it. A bus that consists of queues is read through its inbox."""
        return self.openers.source(self, bus)

    def open_publisher(self, bus: Bus) -> Publisher:
        """Open a bus to publish to; the caller closes it. Raises UserError if it can only be read."""
        return self.openers.publisher(self, bus)

    def open_target(
        self, rule: str, target: TargetRule, connections: Callable[[str], Connection] | None = None
    ) -> Target:
        """Open a target of a rule for one push task; the caller closes it. `connections` defaults to the runtime's."""
        return self.openers.target(self, rule, target, connections or self.connections)
