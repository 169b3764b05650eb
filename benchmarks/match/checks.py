"""Checks the results of the measured code once, for the warm-up events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.match.sets import hostile_sets, routed_sets, rule_sets, slow_sets
from benchmarks.match.workload import SIZES, WARM, Workload

if TYPE_CHECKING:
    from benchmarks.match.bench import Subjects


@dataclass
class Checks:
    """What was compared, a line each, and how many comparisons failed."""

    lines: list[str] = field(default_factory=list)
    failures: int = 0

    def add(self, what: str, differing: int) -> None:
        """Note a comparison."""
        self.failures += differing > 0
        self.lines.append(f"{what}: {f'{differing:,} DIFFER' if differing else 'the same'}")


def check_rule_sets(work: Workload, subjects: Subjects, checks: Checks) -> None:
    """Compare the kernel with the reference matcher, and with Event Ruler where both mean the same."""
    sets = [(rule_set, count, str(size)) for rule_set, count in rule_sets(work) for size in SIZES]
    hard = [(key.rule_set, key.rules, key.events) for key in (*hostile_sets(work), *slow_sets(work))]
    pairs = matched = differing = 0
    for rule_set, count, events in (*sets, *hard):
        asked = _checked(work, rule_set, count, events)
        result = subjects.kernel.call("differences", f"{rule_set}-{count}", events, *asked)
        pairs, matched, differing = pairs + result[0], matched + result[1], differing + result[2]
    checks.add(f"kernel and reference matcher, {pairs:,} pairs of event and rule, {matched:,} match", differing)

    ours = theirs = differing = 0
    for rule_set, count, events in sets:
        number = max(50, work.scale.checked_events // (10 if count > 1_000 else 1))
        name = f"{rule_set}-{count}"
        results = (subjects.kernel.call("counts", name, events, number), subjects.ruler.counts(name, events, number))
        rules = work.rules(rule_set, count).read_text(encoding="utf-8").splitlines()
        for rule, mine, other in zip(rules, *results, strict=True):
            if not _is_known_to_differ(json.loads(rule)):
                ours, theirs, differing = ours + mine, theirs + other, differing + (mine != other)
    checks.add(f"kernel and Event Ruler, rules without exists: false, {ours:,} and {theirs:,} matches", differing)


def _checked(work: Workload, rule_set: str, count: int, events: str) -> tuple[int, int]:
    """Return of how many events, and of how many rules, the reference matcher is asked: it takes its time."""
    if events in ("arrays", "objects"):
        return (2, count) if events == "arrays" else (1, 20)
    number = work.scale.checked_pairs // count // (20 if rule_set == "conditions" else 1)
    return min(200, max(2, number)), count


def check_route(work: Workload, subjects: Subjects, checks: Checks) -> None:
    """Compare the sums of matches on Spark, and of the delivery files with those of the kernel."""
    count = max(count for count in work.scale.rules if count <= 1_000)
    files, rules = work.heads(519, WARM, work.scale.udf_events[count]), work.rules("mixed", count)
    ours = subjects.spark.call("route", rules, files).matches
    theirs = subjects.spark.call("event_ruler", rules, files).matches
    checks.add(f"route and Event Ruler on Spark, {ours:,} and {theirs:,} matches", abs(ours - theirs))

    for key in routed_sets():
        name, events = f"{key.rule_set}-{key.rules}", work.routed_events(key.rule_set)
        if key.who == "whole route":
            rows = subjects.route.call("measure", name, key.events, events).matches
        else:
            rows = subjects.spark.call("whole_route", *subjects.route.call("asked", name, key.events, events)).matches
        subjects.kernel.call("compile", name, work.rules(key.rule_set, key.rules))
        expected = sum(subjects.kernel.call("counts", name, key.events, events))
        what = f"deliveries of {name}, {key.who.removeprefix('whole route').strip() or 'in one process'},"
        checks.add(f"{what} and the kernel's matches, {rows:,} and {expected:,}", abs(rows - expected))


def _is_known_to_differ(rule: Any) -> bool:
    """Tell whether `exists: false` is in a rule: what it means in Event Ruler depends on the other rules."""
    if isinstance(rule, dict):
        return rule.get("exists") is False or any(map(_is_known_to_differ, rule.values()))
    return isinstance(rule, list) and any(map(_is_known_to_differ, rule))
