"""Turns in an open batch follow from its rules, the pools and the overrides, as in stages."""

from __future__ import annotations

from typing import Any

from eventbridge.model.rule_state import OperatorOverrides
from eventbridge.policy.chunking import PoolSlots
from eventbridge.rules import Rule, RuleSet
from eventbridge.streaming.target_queues import PoolTurns
from eventbridge.targets.file.fields import FileFields

SHUT = {"eventbridge.low": PoolSlots(slots=0, free=0), "crm": PoolSlots(slots=1, free=1)}


def said(rule: str, priority: str) -> OperatorOverrides:
    """Return that an operator gave a rule another priority."""
    return OperatorOverrides({(rule, "", "priority"): priority})


def rules(**fields: Any) -> RuleSet:
    """Return the rules `first` and `then` with the target `one`, both with these fields."""
    target = FileFields(name="one", type="file", path="/tmp/never.jsonl")
    made = {
        name: Rule(name=name, bus="orders", runner="orders", pattern={}, targets={"one": target}, **fields)
        for name in ("first", "then")
    }
    return RuleSet(buses={}, rules=made)


def test_an_operators_priority_counts_in_turns() -> None:
    """One slot: the rule that was raised comes before the one that waits longer."""
    waiting = [("first", "one"), ("then", "one")]
    of_file = PoolTurns(rules(pool="crm"), SHUT, OperatorOverrides())
    raised = PoolTurns(rules(pool="crm"), SHUT, said("then", "high"))

    assert of_file.next(waiting, []) == ([("first", "one")], [])
    assert raised.next(waiting, []) == ([("then", "one")], [])
    assert raised.next(waiting[:1], waiting[1:]) == ([], [("then", "one")])


def test_an_operators_priority_decides_which_shared_pool_holds_a_rule() -> None:
    """What was moved into a pool without slots is on hold, and what was moved out of it is not."""
    assert PoolTurns(rules(), SHUT, OperatorOverrides()).on_hold == set()
    assert PoolTurns(rules(), SHUT, said("then", "low")).on_hold == {"then"}
    assert PoolTurns(rules(priority="low"), SHUT, said("then", "high")).on_hold == {"first"}
    assert PoolTurns(rules(), None, said("then", "low")).on_hold == set()
