"""Makes rule sets that are, or were, slow: many keys, regular expressions, nested arrays.

Event Ruler does not get them: it has no regular expressions, and matches arrays in another way.
"""

from __future__ import annotations

import random
from typing import Any, Final

from benchmarks.match import events as e
from benchmarks.match.hard_events import KEY_VALUES
from benchmarks.match.rules import RULES, Rule


def many_keys(count: int = RULES, *, keys: int = 5_000, seed: int = 1) -> list[Rule]:
    """Return rules of one to three fields, each at one of so many keys; rules have nothing else in common."""
    draw = random.Random(seed)
    values = [{"prefix": "v1"}, {"anything-but": "v2"}, {"exists": True}, {"numeric": [">", 50]}, *KEY_VALUES[:20]]
    return [
        {
            "data": {
                f"key_{key}": [draw.choice(values)] for key in draw.sample(range(keys), draw.choice((1, 1, 2, 2, 3)))
            }
        }
        for _ in range(count)
    ]


def regex_of_types(count: int = 1_000, *, seed: int = 1) -> list[Rule]:
    """Return rules of a regular expression at `type`, of which there are 60, and a few shippers."""
    draw = random.Random(seed)
    return [
        {
            "type": [{"regex": rf"io\.carrier\.({'|'.join(draw.sample(e.NOUNS, 3))})\.[a-{draw.choice('cfrz')}]+"}],
            "data": {"shipper": {"id": [f"s-{number:05d}" for number in draw.sample(range(e.SHIPPERS), 20)]}},
        }
        for _ in range(count)
    ]


def regex_of_subjects(count: int = 1_000, *, seed: int = 1) -> list[Rule]:
    """Return rules of a regular expression at `subject`, which is another string in nearly every event."""
    draw = random.Random(seed)
    return [
        {"subject": [{"regex": rf"{draw.choice(e.NOUNS)}/[0-9]*{draw.randrange(1_000):03d}[0-9]{{1,2}}"}]}
        for _ in range(count)
    ]


def common_signs(count: int = 1_000, *, seed: int = 1) -> list[Rule]:
    """Return wildcards that differ in single characters only: what is rare in them stands in every source."""
    draw = random.Random(seed)
    letters = "aceilnoprstu"
    return [
        {"source": [{"wildcard": f"/depots/*/hub-*{draw.randrange(10)}*/*{'*'.join(draw.choices(letters, k=3))}*"}]}
        for _ in range(count)
    ]


def orders(count: int = 1_000, *, seed: int = 1) -> list[Rule]:
    """Return rules of two fields in arrays inside arrays: a line of an order."""
    draw = random.Random(seed)
    return [{"data": {"orders": {"lines": _line(draw)}}} for _ in range(count)]


def objects(count: int = 1_000, *, seed: int = 1) -> list[Rule]:
    """Return rules of two fields in the elements of one array."""
    draw = random.Random(seed)
    return [{"data": {"items": _line(draw)}} for _ in range(count)]


def _line(draw: random.Random) -> dict[str, Any]:
    return {"sku": [f"K-{draw.randrange(e.SKUS):04d}"], "quantity": [{"numeric": [">=", draw.randrange(2, 5)]}]}


HARD: Final = {
    "regex-type": regex_of_types,
    "regex-subject": regex_of_subjects,
    "common-signs": common_signs,
    "orders": orders,
    "objects": objects,
}
"""By name, all but the rules of many keys, whose number of keys is part of the name."""
