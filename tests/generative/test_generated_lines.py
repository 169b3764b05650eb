"""What a file target takes for JSON at first sight is JSON, on generated damage."""

from __future__ import annotations

from generative.damaged_text import Damage
from generative.strictness import REAL

from eventbridge.targets.lines import _is_surely_json, is_json


def test_what_is_taken_for_json_at_first_sight_is_json() -> None:
    """The fast parser may refuse more than RFC 8259 does, and then is asked no further; it never takes more."""
    damage = Damage(2026, REAL)
    documents = [damage.document() for _ in range(20_000)]
    taken = [document for document in documents if _is_surely_json(document)]

    assert [document for document in taken if not is_json(document.decode())] == []
    assert 2_000 < len(taken) < 18_000
