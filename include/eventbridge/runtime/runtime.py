"""Bundles everything that a stage uses in one frozen value: settings, ledger, store, connections, clock and telemetry.

`runtime.open` creates the value, and passes in the functions that read rule files and open sources and targets.
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
    """The functions that read the rule files of a runtime, and open its sources, publishers and targets."""

    rule_files: Callable[[Runtime], RuleSet]
    source: Callable[[Runtime, Bus], LogSource]
    publisher: Callable[[Runtime, Bus], Publisher]
    target: Callable[[Runtime, str, TargetRule, Callable[[str], Connection]], Target]


@dataclass(frozen=True)
class Runtime:
    """The objects that every stage uses. The caller that opened the runtime closes it.

    `rule_set` returns the rules and buses of `owners`, or of all owners if `owners` is None. If `only_matched`, events
    of buses that belong to other owners are visible only if a rule of `owners` matched them.
    """

    settings: Settings
    ledger: Ledger
    store: Store
    connections: Callable[[str], Connection]
    clock: Callable[[], datetime]
    openers: Openers
    telemetry: Telemetry = NO_TELEMETRY
    owners: frozenset[str] | None = None
    only_matched: bool = False

    def apart(self) -> Runtime:
        """Return a copy with its own connection to the ledger, which the caller closes."""
        ledger = Ledger.open(self.settings.ledger_url, clock=self.clock)
        return replace(self, ledger=ledger)

    def restrict_to_owners(self, owners: Collection[str] | None, *, only_matched: bool = False) -> Runtime:
        """Return a copy for a user who is limited to `owners`, or who is not limited if `owners` is None.

        If `only_matched`, events of buses that belong to others are visible only if a rule of `owners` matched them.
        """
        return replace(self, owners=None if owners is None else frozenset(owners), only_matched=only_matched)

    def close(self) -> None:
        """Close the ledger's connections, and send the buffered telemetry."""
        self.ledger.close()
        self.telemetry.close()

    def rule_set(self) -> RuleSet:
        """Return the current rules or, if the rule files have errors, the rules that are in force.

        Rules that operators have disabled are disabled. A user who is limited to owners gets only the rules and buses
        of these owners. If EVENTBRIDGE_RULES_FROM is `published`, the published rules are returned, whatever files this
        host has. Raises NotFoundError if no rules are published, and RuleFileError with every error in the rule files
        if they have errors and no rules are in force.
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
        """Return the bus `eventbridge` of the rules in force or, if they have none, the embedded bus with this name.

        It does not read the rule files, because every stage may publish operational events, and reading many rules
        takes long.
        """
        try:
            return self._last_rules().buses.get(OPERATIONS_BUS.name, OPERATIONS_BUS)
        except (RuleFileError, NotFoundError):  # no rules are in force
            return OPERATIONS_BUS

    def _last_rules(self) -> RuleSet:
        """Return the frozen rules in force. If there are none, or they cannot be read, return the current rules."""
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
        """Return the rules in the rule files. Raises RuleFileError with every error in them."""
        return self.openers.rule_files(self)

    def without_disabled(self, rules: RuleSet) -> RuleSet:
        """Return the rules as batches use them: those that operators have disabled are disabled."""
        return rules.disabling(self.ledger.overrides.get_effective().disabled_rules())

    def rules_of(self, batch: Batch) -> RuleSet:
        """Return the rule set with which a batch was planned.

        If its frozen file is lost or damaged, and the current rules are the same, the file is written again. If they
        differ, raises StoreError.
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
            current = self._rules_of_all_owners()
        except RuleFileError:
            return False
        for rules in (current.for_runner(batch.runner), current):
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
        """Open a bus to read from, which the caller closes. A bus whose source is a queue is read through its inbox."""
        return self.openers.source(self, bus)

    def open_publisher(self, bus: Bus) -> Publisher:
        """Open a bus to publish to, which the caller closes. Raises UserError if the bus can only be read."""
        return self.openers.publisher(self, bus)

    def open_target(
        self, rule: str, target: TargetRule, connections: Callable[[str], Connection] | None = None
    ) -> Target:
        """Open a target of a rule, which the caller closes. By default, `connections` are those of the runtime."""
        return self.openers.target(self, rule, target, connections or self.connections)
