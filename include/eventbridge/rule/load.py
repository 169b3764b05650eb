"""Reads all rule files below a folder into one rule set, or says everything that is wrong with them.

Called by `listen` at every run, by the DAG files when they are parsed, and by `eventbridge rules check`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from eventbridge.errors import Mistake, RuleFileError
from eventbridge.rule.address import path_mistake, path_obstacle
from eventbridge.rule.fields import Fields, nearest
from eventbridge.rule.model import OPERATIONS_BUS, Bus, Rule, Target
from eventbridge.rule.node import Node, Place
from eventbridge.rule.read_rule import read_bus, read_rule
from eventbridge.rule.rule_set import RuleSet
from eventbridge.rule.yaml_tree import read_yaml

SUFFIXES = (".yaml", ".yml")

Thing = TypeVar("Thing", Bus, Rule)


def load_rules(folder: Path, *, look_at_paths: bool = False) -> RuleSet:
    """Return the buses and rules of every `.yaml` and `.yml` file below `folder`, but for hidden files and folders.

    Raises RuleFileError with all mistakes, in the order of files and lines. No file at all is a mistake too:
    it would mean that every rule was removed.
    `look_at_paths`: what stands in the way of file targets on this machine is a mistake too. It is for who checks:
    to a runner it is one target's trouble, to be tried again, and no reason to stop every rule.
    """
    mistakes: list[Mistake] = []
    buses: dict[str, list[Node]] = {}
    rules: dict[str, list[Node]] = {}
    tops = [_read_file(path, mistakes) for path in _rule_files(folder, mistakes)]
    for top in tops:
        if top is not None:
            fields = Fields(top, mistakes, "a rule file")
            for name, node in fields.mapping("buses").items():
                buses.setdefault(name, []).append(node)
            for name, node in fields.mapping("rules").items():
                rules.setdefault(name, []).append(node)
            fields.close()
    for node in buses.pop(OPERATIONS_BUS.name, ()):
        message = f"the bus {OPERATIONS_BUS.name!r} is the product's own"
        mistakes.append(node.mistake_at_key(message, "Remove it: it is always there, and rules can name it"))
    merged = _merged(rules, "rule", read_rule, mistakes)
    known = _merged(buses, "bus", read_bus, mistakes)
    if any(rule.bus == OPERATIONS_BUS.name for rule in merged.values()):
        known[OPERATIONS_BUS.name] = OPERATIONS_BUS
    rule_set = RuleSet(buses=known, rules=merged)
    if None not in tops:  # a file that is no YAML may define the very bus
        _check_together(rule_set, {name: nodes[0] for name, nodes in rules.items()}, mistakes)
    if look_at_paths:
        mistakes.extend(_obstacles(rule_set, {name: nodes[0] for name, nodes in rules.items()}))
    if mistakes:
        raise RuleFileError(sorted(mistakes, key=lambda mistake: (mistake.file, mistake.line, mistake.column)))
    return rule_set


def _rule_files(folder: Path, mistakes: list[Mistake]) -> list[Path]:
    place = Place(str(folder), 1, 1)
    if folder.exists() and not folder.is_dir():
        mistakes.append(place.mistake("$", "this is a file, no folder of rule files", "Name the folder it lies in"))
        return []
    if not folder.is_dir():
        remedy = "Make it, or set EVENTBRIDGE_RULES_FOLDER to the folder of your rule files"
        mistakes.append(place.mistake("$", "the folder of rule files is not there", remedy))
        return []
    files = sorted(_visible_files(folder, mistakes))
    if not files:
        mistakes.append(place.mistake("$", "no rule file lies below this folder", "Write one that ends in .yaml"))
    return files


def _visible_files(folder: Path, mistakes: list[Mistake]) -> Iterator[Path]:
    """Yield what is named as a rule file, whatever it is; a folder that cannot be read would hide its rules."""

    def unreadable(error: OSError) -> None:
        where = Place(str(error.filename), 1, 1)
        remedy = "Let the user that runs Airflow read it, or move it out of the rules folder"
        mistakes.append(where.mistake("$", f"this folder cannot be read: {error.strerror}", remedy))

    entered: set[Path] = set()
    for parent, folders, names in os.walk(folder, onerror=unreadable, followlinks=True):
        here = Path(parent)
        entered.add(here.resolve())
        # a link to a folder above would be walked for ever
        folders[:] = [name for name in folders if not name.startswith(".") and (here / name).resolve() not in entered]
        for name in names:
            if not name.startswith(".") and Path(name).suffix in SUFFIXES:
                yield here / name


def _read_file(path: Path, mistakes: list[Mistake]) -> Node | None:
    """Return the mapping that a file holds."""
    place = Place(str(path), 1, 1)
    try:
        content = path.read_bytes()
    except OSError as error:
        mistakes.append(place.mistake("$", f"the file cannot be read: {error.strerror}", "Make it readable"))
        return None
    known = len(mistakes)
    top = read_yaml(content, str(path), mistakes)
    if top is None and len(mistakes) == known:
        mistakes.append(place.mistake("$", "the file is empty", "Write buses: or rules:, or remove the file"))
    return top


def _merged(
    found: dict[str, list[Node]],
    what: str,
    read: Callable[[str, Node, list[Mistake]], Thing],
    mistakes: list[Mistake],
) -> dict[str, Thing]:
    """Return the first definition of each name, having noted the mistakes in all of them."""
    merged: dict[str, Thing] = {}
    for name, (first, *others) in found.items():
        merged[name] = read(name, first, mistakes)
        for node in others:
            message = f"the {what} {name!r} is defined a second time, first at {first.key}"
            mistakes.append(node.mistake_at_key(message, "Rename or remove one of the two"))
            read(name, node, mistakes)
    return merged


def _check_together(rule_set: RuleSet, nodes: dict[str, Node], mistakes: list[Mistake]) -> None:
    """Note what is wrong only between rules and buses."""
    runners: dict[str, Rule] = {}
    pools: dict[str, Rule] = {}
    for rule in rule_set.rules.values():
        if rule.bus and rule.bus not in rule_set.buses:
            remedy = nearest(rule.bus, rule_set.buses) or "Define it below buses: first"
            mistakes.append(_at(nodes[rule.name], "bus").mistake(f"there is no bus {rule.bus!r}", remedy))
            continue
        first = runners.setdefault(rule.runner, rule)
        if rule.runner and first.bus != rule.bus:
            message = (
                f"the runner {rule.runner!r} consumes the bus {first.bus!r} already, for the rule {first.name!r}, "
                "and a runner consumes one bus"
            )
            remedy = "Name another runner, or leave it out: the bus has one of its own"
            mistakes.append(_at(nodes[rule.name], "runner").mistake(message, remedy))
        mistakes.extend(_pool_mistakes(rule, pools, nodes))


def _obstacles(rule_set: RuleSet, nodes: dict[str, Node]) -> Iterator[Mistake]:
    for rule in rule_set.rules.values():
        for target in rule.targets.values():
            node = _at(_at(nodes[rule.name], "targets"), target.name)
            yield from _obstacle(target, node)
            if target.dead_letter_queue is not None:
                yield from _obstacle(target.dead_letter_queue, _at(node, "dead_letter_queue"))


def _obstacle(target: Target, node: Node) -> Iterator[Mistake]:
    obstacle = path_obstacle(target.path) if target.path and path_mistake(target.path) is None else None
    if obstacle is not None:
        yield _at(node, "path").mistake(*obstacle)


def _pool_mistakes(rule: Rule, pools: dict[str, Rule], nodes: dict[str, Node]) -> Iterator[Mistake]:
    if rule.pool is None or rule.concurrency is None:
        return
    first = pools.setdefault(rule.pool, rule)
    if first.concurrency != rule.concurrency:
        message = (
            f"the rule {first.name!r} gives the pool {rule.pool!r} {first.concurrency} slots, not {rule.concurrency}"
        )
        yield _at(nodes[rule.name], "concurrency").mistake(message, "Give the pool one concurrency, or name it once")


def _at(node: Node, field: str) -> Node:
    """Return a field of a rule, or the rule itself where the field is not given."""
    return node.value.get(field, node) if isinstance(node.value, dict) else node
