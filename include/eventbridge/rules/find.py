"""Finds buses, topics, runners, rules and targets by name in a rule set; errors suggest the nearest name."""

from __future__ import annotations

from eventbridge.errors import NotFoundError
from eventbridge.rules import Bus, Rule, RuleSet, Target
from eventbridge.similar_names import suggest


def find_rule(rules: RuleSet, name: str) -> Rule:
    """Return the rule with the given name. Raises NotFoundError with the nearest name."""
    if name not in rules.rules:
        raise NotFoundError(f"no rule file defines a rule {name!r}. {suggest('Rules', name, rules.rules)}")
    return rules.rules[name]


def find_target(rules: RuleSet, rule: str, target: str) -> Target:
    """Return a target or dead letter queue of a rule. Raises NotFoundError with the nearest name."""
    targets = find_rule(rules, rule).destinations
    if target not in targets:
        raise NotFoundError(f"the rule {rule!r} has no target {target!r}. {suggest('Targets', target, targets)}")
    return targets[target]


def find_target_of_any(rules: RuleSet, target: str) -> None:
    """Raise NotFoundError, with the nearest name, unless some rule has a target or dead letter queue with this name."""
    targets = {name for each in rules.rules.values() for name in each.destinations}
    if target not in targets:
        raise NotFoundError(f"no rule file defines a target {target!r}. {suggest('Targets', target, targets)}")


def find_bus(rules: RuleSet, name: str) -> Bus:
    """Return the bus with the given name. Raises NotFoundError with the nearest name."""
    if name not in rules.buses:
        raise NotFoundError(f"no rule file defines a bus {name!r}. {suggest('Buses', name, rules.buses)}")
    return rules.buses[name]


def find_topic(bus: Bus, name: str | None) -> str:
    """Return a topic of a bus, or its first topic if `name` is None. Raises NotFoundError with the nearest name."""
    topics = bus.source.topics
    if name is not None and name not in topics:
        raise NotFoundError(f"the bus {bus.name!r} has no topic {name!r}. {suggest('Topics', name, topics)}")
    return topics[0] if name is None else name


def find_runner(rules: RuleSet, name: str) -> str:
    """Return the bus that a runner consumes. Raises NotFoundError with the nearest name."""
    runners = rules.runners()
    if name not in runners:
        raise NotFoundError(f"no rule has the runner {name!r}. {suggest('Runners', name, runners)}")
    return runners[name]
