"""What a file target's fast parser accepts as JSON is JSON, on generated damaged text."""

from __future__ import annotations

import pyarrow as pa
from generative.damaged_text import Damage
from generative.strictness import REAL

from eventbridge.targets.lines import _is_surely_json, is_json, json_line, json_lines


def test_a_document_accepted_by_the_fast_parser_is_json() -> None:
    """The fast parser may reject more than RFC 8259 does, but never accepts more."""
    damage = Damage(2026, REAL)
    documents = [damage.document() for _ in range(20_000)]
    taken = [document for document in documents if _is_surely_json(document)]

    assert [document for document in taken if not is_json(document.decode())] == []
    assert 2_000 < len(taken) < 18_000


def test_lines_of_a_block_are_those_of_its_payloads() -> None:
    """A block's lines are those of its payloads, even if some are damaged, at any place in a larger array."""
    damage = Damage(2027, REAL)
    documents = [damage.document() for _ in range(4_000)]
    good = [document for document in documents if _is_surely_json(document) and min(document) >= ord(" ")]
    array = pa.array([*documents, *good], pa.binary())
    spans = [(start, 1 + start % 7) for start in range(0, len(array), 3)] + [(len(documents), len(good))]

    wrong = [
        (start, count)
        for start, count in spans
        if bytes(json_lines(array.slice(start, count)))
        != b"".join(map(json_line, array.slice(start, count).to_pylist()))
    ]

    assert wrong == []
    assert len(good) > 500
