"""Taking the kernel's time apart changes no response and leaves the matcher as it was."""

from __future__ import annotations

import json

import pytest
from benchmarks.match import rules
from benchmarks.match.breakdown import IMPOSSIBLE, shares
from benchmarks.match.events import make_events

from eventbridge.matching import compile_rules
from eventbridge.matching.kernel import matcher as product
from eventbridge.matching.pattern import parse_pattern


def test_every_part_takes_time_and_they_are_all() -> None:
    """Scan, classify, the AND and what is around them add up, and the compiled functions stand where they stood."""
    before = product.scan, product.judge
    events = make_events(4_000)
    mixed = rules.mixed(200)
    whole = compile_rules([parse_pattern(rule) for rule in mixed])
    impossible = compile_rules([parse_pattern(json.dumps(rule | IMPOSSIBLE)) for rule in mixed])

    found = shares(whole, impossible, events)

    assert min(found.scan, found.classify, found.around) > 0
    assert found.judge >= 0
    assert found.all == pytest.approx(sum(found))
    assert (product.scan, product.judge) == before


def test_rules_that_can_be_met_are_refused() -> None:
    """Without the impossible field in every rule the comparison would mean nothing."""
    whole = compile_rules([parse_pattern(rule) for rule in rules.mixed(200)])

    with pytest.raises(ValueError, match="field that none has"):
        shares(whole, whole, make_events(2_000))
