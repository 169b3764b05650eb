"""Compares which texts the kernel, `parse_document` and the standard library's strictest reading reject."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa
from generative.damaged_text import Damage
from generative.guard_page import GuardedText
from generative.kernel_agreement import expected_result, made, results

from eventbridge.event.json_document import MAXIMUM_DEPTH
from eventbridge.matching import compile_rules
from eventbridge.matching.pattern.nodes import Pattern
from eventbridge.matching.scan.leaves import MALFORMED, room_for_leaves, scan
from eventbridge.matching.scan.memory import address_of
from eventbridge.matching.scan.texts import Texts
from eventbridge.matching.scan.tree import path_tree, tree_tables

BLOCK: Final = 500
_ROOM: Final = 4 << 20

#: The bytes that may follow a text in memory: none, or bytes that would continue a truncated text.
BEHIND: Final = (0, *b'1"\\} e\xff')

#: Documents as producers write them: compact, with white space, and with every kind of value.
REAL: Final = [
    b'{"specversion":"1.0","id":"UA1545-2013-01-01","source":"/airports/EWR","type":"flight.departed",'
    b'"time":"2013-01-01T10:17:00Z","data":{"carrier":"UA","flight":1545,"tailnum":"N14228","origin":"EWR",'
    b'"dest":"IAH","dep_delay":2.0,"arr_delay":11.0,"air_time":227.0,"distance":1400,"cancelled":false}}',
    rb"""{
  "specversion": "1.0", "type": "order.placed", "source": "https://shop.example/orders", "id": "b25e2717",
  "datacontenttype": "application/json",
  "data": {"order": "A-17", "customer": {"name": "J\u00f6rg Stra\u00dfe", "vip": null, "ip": "2001:db8::1"},
           "lines": [{"sku": "A1", "quantity": 20, "price": 1.999e3}, {"sku": "B2", "quantity": 1, "tags": []}],
           "note": "he said \"5 \\* 3\"\n\ud83d\ude00 \/ done"}
}""",
    '{"id":"é😀","a":{"b":[[1,-0.5e-3],{"c":"","d":[{},[],null,true]}]},"größe":0,"a":"twice"}'.encode(),
]


def is_strict_json(document: bytes) -> bool:
    """Return whether the standard library reads bytes as one object, strictly and not nested too deep."""
    try:
        text = document.decode("utf-8", "strict")
        # numbers stay text, because integers of more than 4,300 digits raise; members are tuples, to keep duplicates
        value = json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, tuple) and _depth(value) <= MAXIMUM_DEPTH


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)


def _depth(value: Any) -> int:
    deepest, level = 0, [value]
    while level := [inner for inner in level if isinstance(inner, (tuple, list))]:
        deepest += 1
        level = [part for inner in level for part in _parts(inner)]
    return deepest


def _parts(value: Any) -> list[Any]:
    return [inner for _, inner in value] if isinstance(value, tuple) else value


class _Alone:
    """The scanner on a single document before the guard page."""

    def __init__(self, paths: list[tuple[str, ...]]) -> None:
        self._tree = path_tree(paths)
        self._tables = tree_tables(self._tree)
        self._leaves = room_for_leaves(1 << 16)

    def refuses(self, texts: Texts) -> bool:
        """Return whether the only text is malformed."""
        first_leaf, status = np.zeros(2, np.int64), np.empty(1, np.uint8)
        text = address_of(texts.buffer)
        assert scan(text, texts.start, texts.end, self._tables, self._leaves, first_leaf, status, 0) == 1
        return bool(status[0] == MALFORMED)


def originals(seed: int) -> tuple[list[Pattern], list[bytes]]:
    """Return rules, and documents to damage that were made for these rules."""
    patterns, events = made(seed, rules=12, events=300)
    return patterns, [event for event in events if len(event) < 3_000] + REAL


def check_damaged(seed: int, count: int) -> tuple[int, list[str]]:
    """Damage `count` documents; return how many were rejected, and every difference."""
    patterns, documents = originals(seed)
    matcher, damage = compile_rules(patterns), Damage(seed, documents)
    alone = _Alone([("a",), ("a", "b"), ("data", "customer", "name"), ("data",), ("b",)])
    matcher._rooms.text = guard = GuardedText(_ROOM)  # type: ignore[assignment]
    refused, differences = 0, []
    for number in range(0, count, BLOCK):
        behind = BEHIND[number // BLOCK % len(BEHIND)]
        block = [damage.document() for _ in range(BLOCK)]
        found = results(matcher.match(pa.array(block, pa.binary())))
        for document, response in zip(block, found, strict=True):
            expected = expected_result(patterns, document)
            refused += expected is None
            if response != expected:
                differences.append(f"{document!r}: kernel {response}, reference {expected}")
            if is_strict_json(document) != (expected is not None):
                differences.append(f"{document!r}: parse_document and the standard library disagree")
            if alone.refuses(guard.texts([document], behind)) != (expected is None):
                differences.append(f"{document!r}: the scanner alone, at the end of the memory, disagrees")
    return refused, differences
