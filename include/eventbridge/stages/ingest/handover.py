"""Rules that moved from one runner to another: they go on where their old runner stands, so that no event is missed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eventbridge.errors import RuleMovedError
from eventbridge.model.queue import Queue
from eventbridge.rule import Bus, RuleSet
from eventbridge.sources.protocol import LogSource
from eventbridge.stages.guards.log_identity import standing
from eventbridge.stages.runtime.runtime import Runtime


def old_runners(work: Runtime, rules: RuleSet, runner: str, bus: str) -> dict[str, list[str]]:
    """Return the runners that rules of `runner` came from, on the same bus, each with those rules' names."""
    assigned = work.ledger.runners_of_targets()
    groups = {row.group for row in work.ledger.consumer_offsets() if row.bus == bus}
    found: dict[str, list[str]] = {}
    for rule in rules.rules.values():
        for target in rule.targets:
            old = assigned.get((rule.name, target), runner)
            if old != runner and old in groups and rule.name not in found.setdefault(old, []):
                found[old].append(rule.name)
    return {old: names for old, names in found.items() if names}


def inherited_offsets(work: Runtime, bus: Bus, source: LogSource, olds: Iterable[str]) -> dict[Queue, int]:
    """Return where a new group starts that takes over rules: at the earliest offset where an old runner stands."""
    start: dict[Queue, int] = {}
    for old in olds:
        for queue, offset in _standings(work, bus, source, old).items():
            start[queue] = min(offset, start.get(queue, offset))
    return start


def refuse_to_skip(
    work: Runtime, bus: Bus, source: LogSource, runner: str, known: Mapping[Queue, int], olds: Mapping[str, list[str]]
) -> None:
    """Raise RuleMovedError if a rule came to a group that is further than the rule's old runner.

    What lies between the two would be missed: the old runner no longer has the rule, this one is past the events.
    """
    for old, names in olds.items():
        behind = sum(
            max(0, known[queue] - offset)
            for queue, offset in _standings(work, bus, source, old).items()
            if queue in known
        )
        if behind:
            raise RuleMovedError(
                f"The rules {', '.join(names)} moved from runner {old!r} to {runner!r}, which is {behind:,} events "
                f"further: they would be missed. Move them back until `eventbridge status` shows that {old!r} has "
                "caught up, or give them a runner of a new name, which starts where the old one stands"
            )


def _standings(work: Runtime, bus: Bus, source: LogSource, old: str) -> dict[Queue, int]:
    existing = set(source.queues())
    rows = [row for row in work.ledger.consumer_offsets(old) if row.queue in existing]
    return {row.queue: standing(row, bus, source) for row in rows}


def assign(work: Runtime, rules: RuleSet, runner: str) -> None:
    """Note that a runner delivers for its rules from now on; writes only what changed."""
    assigned = work.ledger.runners_of_targets()
    pairs = {(rule.name, target) for rule in rules.rules.values() for target in rule.targets}
    work.ledger.assign_targets(runner, (pair for pair in pairs if assigned.get(pair) != runner))
