"""A batch's reconciliation alone decides whether it met its rules' expectations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from eventbridge.event.ids import Fingerprint
from eventbridge.policy.quality import failed_expectations
from eventbridge.policy.reconciliation import Reconciliation
from eventbridge.rules import Rule, RuleSet
from eventbridge.rules.model import Bounds, Expect
from eventbridge.targets.file.fields import FileFields


def rules(expect: Expect | None, shadows: Mapping[str, str] | None = None, **fields: Any) -> RuleSet:
    """Return one rule `r` with the targets `a` and `b`, some of which are shadows of others."""
    of = shadows or {}
    targets = {
        name: FileFields(name=name, type="file", path="/tmp/never.jsonl", shadow_of=of.get(name)) for name in ("a", "b")
    }
    rule = Rule(name="r", bus="orders", runner="orders", pattern={}, targets=targets, expect=expect, **fields)
    return RuleSet(buses={}, rules={"r": rule})


def reconciliation(**numbers: tuple[int, int]) -> Reconciliation:
    """Return a reconciliation with the given counts of `r/a` and `r/b` in each field."""
    pairs = {name: {"r/a": Fingerprint(a, 0, 0), "r/b": Fingerprint(b, 0, 0)} for name, (a, b) in numbers.items()}
    failures = {key: value.count for key, value in pairs.pop("transform_failures", {}).items()}
    return Reconciliation(**pairs, transform_failures=failures)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expect", "failed"),
    [
        (Expect(matches=Bounds(at_least=10, at_most=10)), None),
        (Expect(matches=Bounds(at_most=9)), "matches is 10, expected at most 9"),
        (
            Expect(matches=Bounds(at_least=1_000, at_most=2_000)),
            "matches is 10, expected at least 1,000 and at most 2,000",
        ),
        (Expect(dead_letter_rate=Bounds(at_most=0.25)), None),
        (Expect(dead_letter_rate=Bounds(at_most=0.2)), "dead_letter_rate is 0.25, expected at most 0.2"),
        (Expect(transform_failure_rate=Bounds(at_most=0)), "transform_failure_rate is 0.05, expected at most 0"),
        (Expect(), None),
        (None, None),
    ],
)
def test_counts_are_compared_with_both_bounds(expect: Expect | None, failed: str | None) -> None:
    """Counts and rates are compared with both bounds."""
    found = reconciliation(matched=(10, 10), delivered=(10, 2), pending=(0, 4), dead=(0, 4), transform_failures=(0, 1))

    assert failed_expectations(rules(expect), found) == ({} if failed is None else {"r": failed})


def test_a_rule_without_a_match_has_rates_of_nothing() -> None:
    """A rule without a match fails a lower bound of matches, but no upper bound of a rate."""
    expect = Expect(matches=Bounds(at_least=1), dead_letter_rate=Bounds(at_most=0))

    assert failed_expectations(rules(expect), Reconciliation()) == {"r": "matches is 0, expected at least 1"}


def test_a_rule_that_is_disabled_or_not_routed_whole_is_not_judged() -> None:
    """A disabled rule and a rule whose events are partly routed later are not judged."""
    expect = Expect(matches=Bounds(at_least=1))

    assert failed_expectations(rules(expect, enabled=False), Reconciliation()) == {}
    assert failed_expectations(rules(expect), Reconciliation(deferred={"r": Fingerprint(1, 0, 0)})) == {}


def test_shadows_do_not_count() -> None:
    """Shadows do not count, because all their deliveries are settled and would halve the rate of the others."""
    expect = Expect(dead_letter_rate=Bounds(at_most=0.6))
    found = reconciliation(matched=(10, 10), delivered=(0, 10), dead=(10, 0))
    shadowed = rules(expect, shadows={"b": "a"})

    assert failed_expectations(shadowed, found) == {"r": "dead_letter_rate is 1, expected at most 0.6"}
