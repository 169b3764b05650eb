"""An hour's counts become measures, which are compared with bounds."""

from __future__ import annotations

from eventbridge.model.quality import Measure, Subject
from eventbridge.policy.quality import (
    BusCounts,
    FieldCounts,
    QualityLimits,
    TargetCounts,
    failed_rules,
    failure_message,
    measures_of,
)
from eventbridge.rules.model import Bounds, FieldExpectation

LIMITS = QualityLimits(0.01, 0.05, 0.05, 0.5, volume_tolerance=0.5, volume_days=3)
BUS = Subject("bus", "orders")
FIELD = Subject("field", "r", "$.a")


def test_a_volume_is_bounded_by_the_least_and_the_most_of_other_days() -> None:
    """The bounds are half of the minimum and 1.5 times the maximum; with too few days, a reason replaces them."""
    enough = measures_of({"orders": BusCounts(7)}, {}, {}, {(BUS, "events"): [10, 20, 12]}, LIMITS)
    too_few = measures_of({"orders": BusCounts(7)}, {}, {}, {(BUS, "events"): [10, 20]}, LIMITS)

    assert enough[0] == Measure(BUS, "events", 7, 5, 30)
    assert too_few[0] == Measure(BUS, "events", 7, note="too little history: 2 of 3 days")


def test_rates_are_shares_of_what_they_are_about() -> None:
    """Each rate is a share of its base: events that were read or matched, or deliveries that are settled."""
    counts = TargetCounts(matched=10, pending=4, delivered=3, dead_letters={"non_retryable": 1})
    found = measures_of({"orders": BusCounts(100, 2, 3)}, {("r", "a"): counts}, {}, {}, LIMITS)

    assert {each.name: each.value for each in found} == {
        "events": 100,
        "malformed_rate": 0.02,
        "duplicate_rate": 0.03,
        "deliveries": 10,
        "delivered_rate": 0.75,
        "pending_rate": 0.4,
        "dead_letter_rate": 0.25,
    }


def test_a_field_without_a_number_has_no_range() -> None:
    """A field without a number has a null rate and a count of other types, but no minimum."""
    expected = FieldExpectation(null_rate=Bounds(at_most=0.5), value=Bounds(at_least=1))
    found = measures_of({}, {}, {("r", "$.a"): (expected, FieldCounts(4, 3, 0))}, {}, LIMITS)

    assert found == [
        Measure(FIELD, "null_rate", 0.75, None, 0.5),
        Measure(FIELD, "not_a_number_rate", 0.25, at_most=0.0),
    ]


def test_only_what_a_rule_expects_holds_it() -> None:
    """A failed field expectation puts its rule on hold; a failure of a bus or a target is only reported."""
    of_bus = Measure(BUS, "events", 2, 5, 30)
    of_field = [Measure(FIELD, "null_rate", 0.75, None, 0.5), Measure(FIELD, "least_value", 0.5, 1)]

    assert failure_message(of_bus) == "orders: events is 2, expected at least 5 and at most 30"
    assert failed_rules([of_bus, *of_field]) == {
        "r": "$.a: null_rate is 0.75, expected at most 0.5; $.a: least_value is 0.5, expected at least 1"
    }
