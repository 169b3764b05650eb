"""What buffer learned about the schemas of a batch: merged with the ledger's schemas, with events about the changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from eventbridge.errors import EventBridgeError
from eventbridge.ledger.schemas import LearnedSchema
from eventbridge.model.batch import Batch
from eventbridge.model.event_schema import TypeSample
from eventbridge.policy.field_use import rules_using
from eventbridge.policy.operational_event import of_schema
from eventbridge.policy.schema import learn
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.rule_sets import frozen_rules

log = logging.getLogger(__name__)

#: Maximum types that are learned for a bus: a bus that puts ids into its types must not fill the ledger.
MOST_TYPES: Final = 500


def learned_schemas(runtime: Runtime, batch: Batch, samples: Mapping[str, TypeSample]) -> list[LearnedSchema]:
    """Return the updated schemas of a batch's types, and the operational events about their changes.

    Once a bus has the maximum number of types, further types are ignored.
    """
    if not samples:
        return []
    known, types = runtime.ledger.schemas_of(batch.bus, samples)
    new = [name for name in samples if name not in known]
    passed_over = set(new[max(0, MOST_TYPES - types) :])
    found = [
        learn(known.get(name), batch.bus, name, sample, batch.planned_at)
        for name, sample in samples.items()
        if name not in passed_over
    ]
    rules = _rules_of_all(runtime, batch) if any(each.changes for each in found) else None
    return [
        LearnedSchema(each.schema, tuple(of_schema(change, rules_using(rules, change)) for change in each.changes))
        if rules is not None
        else LearnedSchema(each.schema, ())
        for each in found
    ]


def _rules_of_all(runtime: Runtime, batch: Batch) -> RuleSet:
    """Return the rules in force of all runners, or those that the batch is pinned to if they cannot be read."""
    try:
        known = runtime.ledger.rules_in_force()
        if known is not None:
            return frozen_rules(runtime.store, known.rule_set)
    except EventBridgeError as error:
        log.warning("batch %s names rules of its own runner only: %s", batch.batch_id, error)
    return runtime.rules_of(batch)
