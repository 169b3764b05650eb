"""Additional checks of rule files: obstacles of targets on this machine, runners without rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from eventbridge.errors import RuleError
from eventbridge.rules.fields import nearest
from eventbridge.rules.model import Target
from eventbridge.rules.node import Node
from eventbridge.rules.rule_set import RuleSet
from eventbridge.rules.types import TARGET_TYPES


def unknown_runners(rule_set: RuleSet, nodes: Mapping[str, Node]) -> Iterator[RuleError]:
    """Yield an error for each configured runner without rules."""
    known = rule_set.runners()
    for number, name in enumerate(sorted(rule_set.modes.keys() - known.keys())):
        remedy = nearest(name, known, number) or "Name it in a rule: runner: <name>, or remove it"
        yield nodes[name].error_at_key(f"no rule has the runner {name!r}", remedy)


def obstacles(rule_set: RuleSet, nodes: Mapping[str, Node], folders: Sequence[Path]) -> Iterator[RuleError]:
    """Yield the obstacles of targets on this machine; file targets may write below `folders`."""
    for rule in rule_set.rules.values():
        for target in rule.targets.values():
            node = at(at(nodes[rule.name], "targets"), target.name)
            yield from _obstacle(target, node, folders)
            if target.dead_letter_queue is not None:
                yield from _obstacle(target.dead_letter_queue, at(node, "dead_letter_queue"), folders)


def _obstacle(target: Target, node: Node, folders: Sequence[Path]) -> Iterator[RuleError]:
    kind = TARGET_TYPES.find(target.type)
    obstacle = kind.obstacle(target, folders) if kind is not None else None  # otherwise an error is recorded already
    if obstacle is not None:
        yield at(node, obstacle.field).error(obstacle.message, obstacle.remedy)


def at(node: Node, field: str) -> Node:
    """Return a field of a rule, or the rule itself if the field is not given."""
    return node.value.get(field, node) if isinstance(node.value, dict) else node
