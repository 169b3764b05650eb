"""Decides whether a batch met the expectations of its rules. Pure: counts in, failures out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eventbridge.event.ids import Fingerprint
from eventbridge.policy.reconciliation import Reconciliation
from eventbridge.rules import RuleSet, Target
from eventbridge.rules.model import Bounds, Expect

_NOTHING = Fingerprint()


@dataclass(frozen=True)
class RuleCounts:
    """The counts of a batch for one rule: matched events, and deliveries by outcome."""

    matches: int
    deliveries: int
    delivered: int
    dead_letters: int
    transform_failures: int


def failed_expectations(rules: RuleSet, reconciliation: Reconciliation) -> dict[str, str]:
    """Return the failures of each rule's `expect` in a batch that routed new events, by rule.

    A rule with a deferred part of the batch is not checked: its counts are incomplete.
    """
    failed = {}
    for rule in rules.with_field("expect"):
        if rule.expect is None or not rule.enabled or rule.name in reconciliation.deferred:
            continue
        if found := "; ".join(_failures(rule.expect, counts_of(reconciliation, rule.name, rule.targets))):
            failed[rule.name] = found
    return failed


def counts_of(reconciliation: Reconciliation, rule: str, targets: Mapping[str, Target]) -> RuleCounts:
    """Return a rule's counts in the reconciliation of a batch; each matched event has one delivery for each target.

    A shadow does not count: its deliveries are settled whatever its target responds.
    """
    keys = [f"{rule}/{name}" for name, target in targets.items() if target.shadow_of is None]
    matched = [reconciliation.matched.get(key, _NOTHING).count for key in keys]
    return RuleCounts(
        matches=max(matched, default=0),
        deliveries=sum(matched),
        delivered=sum(reconciliation.delivered.get(key, _NOTHING).count for key in keys),
        dead_letters=sum(reconciliation.dead.get(key, _NOTHING).count for key in keys),
        transform_failures=sum(reconciliation.transform_failures.get(key, 0) for key in keys),
    )


def rate(part: int, whole: int) -> float:
    """Return `part` as a share of `whole`; 0 if `whole` is 0."""
    return part / whole if whole else 0.0


def _failures(expect: Expect, counts: RuleCounts) -> Iterator[str]:
    settled = counts.delivered + counts.dead_letters
    for name, bounds, value in (
        ("matches", expect.matches, float(counts.matches)),
        ("dead_letter_rate", expect.dead_letter_rate, rate(counts.dead_letters, settled)),
        ("transform_failure_rate", expect.transform_failure_rate, rate(counts.transform_failures, counts.deliveries)),
    ):
        if bounds is not None and not bounds.is_met_by(value):
            yield broken(name, bounds, value)


def broken(name: str, bounds: Bounds, value: float) -> str:
    """Return the message of a failed expectation, such as `matches is 12, expected at most 10`."""
    ends = (("at least", bounds.at_least), ("at most", bounds.at_most))
    expected = " and ".join(f"{word} {number_text(end)}" for word, end in ends if end is not None)
    return f"{name} is {number_text(value)}, expected {expected}"


def number_text(value: float) -> str:
    """Return a count as a whole number, a share with at most four digits."""
    return f"{value:,.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:.4g}"
