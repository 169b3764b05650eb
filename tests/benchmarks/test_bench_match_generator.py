"""The events and rules that `make bench-match` makes: always the same ones, as large and as mixed as they claim."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchmarks.match import rules
from benchmarks.match.events import SIZES, Size, make_events
from benchmarks.match.hard_events import make_array_events, make_key_events, make_object_events, make_order_events
from benchmarks.match.hard_rules import HARD, many_keys

from eventbridge.event.cloudevent import parse_event
from eventbridge.matching import compile_rules
from eventbridge.matching.pattern import parse_pattern

FIELDS = {
    "one-of": "data.shipper.id",
    "label": "data.labels",
    "equals-ignore-case": "data.region",
    "cidr": "data.gateway",
    "exists": "data.fault.code",
    "lines": "data.lines.sku",
}


@pytest.mark.parametrize("size", SIZES)
def test_events_are_cloudevents_of_their_size(size: Size) -> None:
    """Every event is a valid CloudEvent, and the mean length is the promised one to half a percent."""
    texts = make_events(4_000, size)
    parsed = [parse_event(text.encode(), max_bytes=2**20) for text in texts[:200].to_pylist()]

    assert len({event.id for event in parsed}) == 200
    assert pc.mean(pc.binary_length(texts)).as_py() == pytest.approx(size, rel=0.005)


def test_events_are_the_same_for_the_same_block_only() -> None:
    """A block can be rebuilt, alone or as the beginning of a longer one; another block has other events."""
    first = make_events(300).to_pylist()

    assert first == make_events(300).to_pylist()
    assert set(first).isdisjoint(make_events(300, block=1).to_pylist())
    assert set(first).isdisjoint(make_events(300, seed=2).to_pylist())


def test_fresh_sources_never_come_again() -> None:
    """Where asked for, no two events have the same source."""
    sources = [json.loads(text)["source"] for text in make_events(2_000, fresh_sources=True).to_pylist()]

    assert len(set(sources)) == 2_000


@pytest.mark.parametrize("keys", [100, 5_000])
def test_key_events_are_of_one_size_and_hit_rules_over_as_many_keys(keys: int) -> None:
    """519 bytes each, 14 different keys and a filling in each; most rules of one key match some event."""
    texts = make_key_events(300, keys).to_pylist()
    members = [json.loads(text, object_pairs_hook=list) for text in texts]
    matcher = compile_rules([parse_pattern(rule) for rule in many_keys(5_000, keys=keys)])

    assert {len(text) for text in texts} == {519}
    assert {len({name for name, _ in dict(event)["data"]}) for event in members} == {15}
    assert len({key for event in members for key, _ in dict(event)["data"]}) > min(keys, 2_000)
    assert len(matcher.match(pa.array(texts)).rules) > 100
    assert make_key_events(300, keys, block=1).to_pylist() != texts


@pytest.mark.parametrize("name", HARD)
def test_rules_known_to_be_slow_match_their_events(name: str) -> None:
    """Some rule matches some event, and what goes to the reference matcher are the arrays inside arrays."""
    made = {"orders": lambda: make_order_events(200), "objects": lambda: make_object_events(2, 500)}
    events = made.get(name, lambda: make_events(500))()

    found = compile_rules([parse_pattern(rule) for rule in HARD[name](200)]).match(events)

    assert 0 < len(found.rules) < len(events) * 200
    assert not len(found.malformed)
    assert (found.handed_back > 0) == (name == "orders")


def test_order_events_have_arrays_inside_arrays() -> None:
    """Every order has a list of lines."""
    for text in make_order_events(20).to_pylist():
        assert all(len(order["lines"]) > 1 for order in json.loads(text)["data"]["orders"])


def test_array_events_have_arrays_of_the_length() -> None:
    """The labels are so many scalars."""
    lengths = [len(json.loads(text)["data"]["labels"]) for text in make_array_events(3, 1_000).to_pylist()]

    assert lengths == [1_000] * 3


def test_mixed_rules_have_one_to_four_fields_of_every_kind() -> None:
    """Kinds come in like shares, beside the type; sets are the same every time, and small ones begin large ones."""
    made = rules.mixed(3_000)
    counts = Counter(len(list(_leaf_lists(rule))) for rule in made)
    shares = {kind: sum(field in dict(_leaf_lists(rule)) for rule in made) / 3_000 for kind, field in FIELDS.items()}

    assert made[:100] == rules.mixed(100)
    assert len(rules.KINDS) == 14
    assert set(counts) == {1, 2, 3, 4}
    assert min(counts.values()) > 200
    assert all(0.05 < share < 0.2 for share in shares.values()), shares


@pytest.mark.parametrize(
    "made",
    [
        rules.mixed(300),
        *(rules.of_kind(kind, 100) for kind in ("wildcard", "numeric-range", "anything-but")),
        rules.many_break_points(100),
        rules.many_conditions(5),
        rules.many_matches(100),
    ],
)
def test_rules_are_patterns(made: list[rules.Rule]) -> None:
    """Every rule is in the pattern language."""
    for rule in made:
        parse_pattern(rule)


def test_hostile_rules_are_as_large_as_they_claim() -> None:
    """10,000 rules have 40,000 different break points on one path, a rule of many conditions has 256."""
    points = {
        number
        for rule in rules.many_break_points()
        for condition in rule["data"]["weight"]
        for number in condition["numeric"][1::2]
    }
    conditions = [sum(len(listed) for _, listed in _leaf_lists(rule)) for rule in rules.many_conditions(3)]

    assert len(points) == 40_000
    assert conditions == [256] * 3


def _leaf_lists(rule: dict[str, Any], above: str = "") -> list[tuple[str, list[Any]]]:
    found: list[tuple[str, list[Any]]] = []
    for key, value in rule.items():
        found += _leaf_lists(value, f"{above}{key}.") if isinstance(value, dict) else [(above + key, value)]
    return found
