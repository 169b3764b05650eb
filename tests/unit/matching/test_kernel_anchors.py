"""Rule sets of many paths, whose branches have anchors."""

from __future__ import annotations

import random
from typing import Any

from generative.kernel_agreement import compare

from eventbridge.event.json_document import write_document
from eventbridge.matching import compile_rules
from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.program import FEW_PATHS
from eventbridge.matching.pattern import Pattern, parse_pattern

CONDITIONS: list[Any] = [
    "x",
    1,
    {"prefix": "x"},
    {"anything-but": "x"},
    {"exists": True},
    {"exists": False},
    {"numeric": [">", 0]},
    {"all": [{"prefix": "x"}, {"suffix": "y"}]},
]
VALUES: list[Any] = ["x", "xy", "z", 1, 0, None, ["x", 1], [], {}]


def many(seed: int, rules: int, keys: int) -> tuple[list[Pattern], list[bytes]]:
    """Return rules over so many keys, some in arrays, with `$or` and `$not`, and events that have a few of the keys."""
    random_ = random.Random(seed)

    def conditions() -> list[Any]:
        return random_.sample(CONDITIONS, random_.randint(1, 2))

    def some(size: int) -> dict[str, Any]:
        return {f"key-{random_.randrange(keys):04d}": conditions() for _ in range(size)}

    def rule() -> dict[str, Any]:
        found: dict[str, Any] = some(random_.randint(1, 3))
        if random_.random() < 0.2:
            found["items"] = some(2)
        if random_.random() < 0.1:
            found["$or"] = [some(1), some(2)]
        if random_.random() < 0.1:
            found["$not"] = some(1)
        return found

    def event() -> bytes:
        def values(size: int) -> dict[str, Any]:
            return {f"key-{random_.randrange(keys):04d}": random_.choice(VALUES) for _ in range(size)}

        return write_document({**values(keys // 8), "items": [values(keys // 8) for _ in range(2)]}).encode()

    return [parse_pattern(rule()) for _ in range(rules)], [event() for _ in range(60)]


def test_rules_over_many_keys_match_as_the_reference_says() -> None:
    """Absent paths, several classes of one path, arrays, `$or` and `$not`, with rules of one key and without any."""
    matched = 0
    for seed in range(6):
        patterns, events = many(seed, rules=200, keys=FEW_PATHS)
        matcher = compile_rules([*patterns, parse_pattern({})])
        agreement = compare([*patterns, parse_pattern({})], events, matcher)

        assert matcher._tables.number(t.ANCHORED) == 1
        assert agreement.differences == []
        matched += agreement.matched

    assert matched > 4_000


def test_few_keys_need_no_anchors() -> None:
    """The layout follows the number of paths, and both give the same results."""
    patterns, events = many(7, rules=100, keys=20)
    plain, anchored = compile_rules(patterns), compile_rules(patterns, few_paths=0)

    assert (plain._tables.number(t.ANCHORED), anchored._tables.number(t.ANCHORED)) == (0, 1)
    assert compare(patterns, events, plain).differences == []
    assert compare(patterns, events, anchored).differences == []


def test_a_changed_rule_set_matches_as_one_that_was_compiled_from_nothing() -> None:
    """Rules that stay, go, come, and change places; the previous matcher continues with its own."""
    patterns, events = many(8, rules=120, keys=40)
    before, after = patterns[:100], [*patterns[60:], *patterns[:10], patterns[0]]
    previous = compile_rules(before)
    changed = compile_rules(after, previous=previous)

    assert compare(after, events, changed).differences == []
    assert compare(before, events, previous).differences == []
