"""Memory is bounded or grows, and no result depends on it: classes are dropped, rooms for leaves and rules grow."""

from __future__ import annotations

import threading

import pyarrow as pa
from generative.kernel_agreement import compare, expected_result, made, results

from eventbridge.event.json_document import write_document
from eventbridge.matching import compile_rules
from eventbridge.matching.pattern import parse_pattern


def test_classes_are_dropped_when_there_is_no_room_and_responses_stay_right() -> None:
    """Many more classes than rows: each time all are dropped, counted, and the event at hand begun again."""
    patterns = [parse_pattern({"a": [number], "b": [{"anything-but": str(number)}]}) for number in range(100)]
    events = [f'{{"a":{number % 101},"b":"{number % 7}"}}'.encode() for number in range(3_000)]
    narrow, wide = compile_rules(patterns, class_rows=6), compile_rules(patterns)

    assert compare(patterns, events, narrow).differences == []
    assert compare(patterns, events, wide).differences == []
    assert narrow.clears > 500
    assert 0 < narrow.classes <= 6
    assert (wide.clears, wide.classes) == (0, 101 + 7)
    assert narrow.match(pa.array(events)).handed_back == 0


def test_an_event_of_more_classes_than_fit_is_right_and_not_handed_back() -> None:
    """What its leaves do is joined while classes are dropped, and the events beside it are as before."""
    patterns = [parse_pattern({"a": [number]}) for number in range(50)]
    events = [b'{"a":7}', write_document({"a": list(range(30))}).encode(), b'{"a":8}']
    matcher = compile_rules(patterns, class_rows=1)
    found = matcher.match(pa.array(events))

    assert results(found) == [[7], list(range(30)), [8]]
    assert found.handed_back == 0
    assert matcher.clears > 0


def test_of_more_classes_than_there_is_room_for_only_doubtful_pairs_are_handed_back() -> None:
    """Rules whose fields may have been met in different elements, and no other, are left to the reference matcher."""
    pairs = [{"a": {"b": [number], "c": [number + shift]}} for number in range(40) for shift in (0, 1)]
    alone = [{"a": {"b": [number]}} for number in range(40)]
    patterns = [parse_pattern(pattern) for pattern in [*pairs, *alone, {"x": [1]}]]
    elements = [{"b": number, "c": number} for number in range(30)]
    events = [write_document({"a": elements}).encode(), write_document({"a": elements[:1], "x": 1}).encode()]
    matcher = compile_rules(patterns, class_rows=1)
    found = matcher.match(pa.array(events))

    assert results(found)[0] == [*range(0, 60, 2), *range(80, 110)]
    assert compare(patterns, events, matcher).differences == []
    assert 30 <= found.handed_back <= 60


def test_room_does_not_add_up_from_call_to_call() -> None:
    """Matches, pairs to be handed back and leaves beyond all measure take room once, and give it back."""
    patterns = [parse_pattern({"c": [{"exists": True}], "$or": [{"x": [n]} for n in range(70)]})] * 3
    patterns += [parse_pattern({"a": [{"exists": True}]})] * 2_500
    matcher = compile_rules(patterns)
    rooms = set()
    for _ in range(4):
        found = matcher.match(
            pa.array([b'{"a": 1, "c": 1, "x": 3}', b'{"a": ' + str([1] * 300).encode() + b"}"] * 1_200)
        )

        assert len(found.rules) == 1_200 * (2_503 + 2_500)
        rooms.add((len(matcher._rooms.rules), len(matcher._rooms.handed), len(matcher._rooms.leaves.node)))
    assert len(rooms) == 1
    assert max(max(room) for room in rooms) < 2_000_000


def test_freed_memory_is_not_read() -> None:
    """The leaves of one element are read from the new memory, though both are of one size."""
    patterns = [parse_pattern({"a": [{"exists": True}]})] * 2_500 + [parse_pattern({"b": {"c": [1], "d": [1]}})]
    matcher = compile_rules(patterns)
    matcher.match(pa.array(['{"a": 1}']))
    before = matcher._rooms.leaves
    matcher.match(pa.array(['{"a": 1}'] * 1_000))

    assert matcher._rooms.leaves is not before
    assert results(matcher.match(pa.array(['{"b": [{"c": 1}, {"d": 1}]}', '{"b": [{"c": 1, "d": 1}]}']))) == [
        [],
        [2_500],
    ]


def test_random_rules_are_right_whatever_the_room() -> None:
    """So little room that most events are begun again or handed back."""
    for seed in range(6):
        patterns, events = made(seed, rules=40, events=100)
        matcher = compile_rules(patterns, class_rows=(1, 40)[seed % 2], few_paths=(0, 100)[seed % 3 == 0])

        assert compare(patterns, events, matcher).differences == []
        assert matcher.clears > 0


def test_events_of_many_leaves_and_many_matches_find_room() -> None:
    """Leaves, rules and pairs to be handed back outgrow what was set aside for a block."""
    certain = [parse_pattern({"a": {"b": [{"exists": True}]}}) for _ in range(150)]
    uncertain = [parse_pattern({"c": [{"numeric": ["<", 10**30]}, 5], "$or": [{"x": [n]} for n in range(70)]})] * 3
    large = write_document({"a": [{"b": number} for number in range(60_000)], "c": "x" * 100_000}).encode()
    events = [b'{"a":{"b":1},"c":4,"x":3}'] * 1_500 + [large, b"{}"]
    found = compile_rules([*certain, *uncertain]).match(pa.array(events))

    assert results(found) == [list(range(153))] * 1_500 + [list(range(150)), []]
    assert found.handed_back == 4_500


def test_threads_that_share_a_matcher_get_their_own_responses() -> None:
    """Calls take turns."""
    patterns, events = made(3, rules=50, events=200)
    expected = [expected_result(patterns, event) for event in events]
    matcher, wrong = compile_rules(patterns, class_rows=50), []

    def ask(first: int) -> None:
        turned = events[first:] + events[:first]
        for _ in range(5):
            if results(matcher.match(pa.array(turned))) != expected[first:] + expected[:first]:
                wrong.append(first)

    threads = [threading.Thread(target=ask, args=(first,)) for first in (0, 50, 100, 150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
