"""The rest of a chunk that a push must send, given the outcomes in segments."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from eventbridge.delivery.outstanding import ReadPiece, select_outstanding
from eventbridge.delivery.segments import Responses, read_responses
from eventbridge.model.chunk import Piece
from eventbridge.store import schemas
from eventbridge.store.parquet import write_table
from eventbridge.testing.store import InMemoryStore

_NOW = datetime(2026, 11, 27, tzinfo=UTC)


def _id(number: int) -> bytes:
    return number.to_bytes(16)


def _shown(**outcomes: str) -> Responses:
    """Return responses to deliveries, by `n` and their number."""
    rows = [
        {
            "delivery_id": _id(int(name[1:])),
            "rule": "orders",
            "target": "crm",
            "attempt": 1,
            "sent": True,
            "started_at": _NOW,
            "duration_ms": 1.0,
            "outcome": outcome,
            "due_at": _NOW if outcome == "retry_scheduled" else None,
        }
        for name, outcome in outcomes.items()
    ]
    store = InMemoryStore()
    write_table(store, "outcomes/a.parquet", pa.Table.from_pylist(rows, schema=schemas.OUTCOME))
    return read_responses(store, ["outcomes/a.parquet"])


def _never() -> list[tuple[object, ...]]:
    raise AssertionError("rows became Python values")


def _piece(*numbers: int) -> ReadPiece:
    table = pa.table({"delivery_id": pa.array([_id(number) for number in numbers], pa.binary(16))})
    piece = Piece("deliveries/x", f"0-{len(numbers) - 1}", len(numbers), 0, "orders", "crm")
    return ReadPiece(piece, len(numbers), 0, lambda: table, _never)


def test_final_outcomes_never_become_python_values() -> None:
    """A piece all of which is delivered, or dead-lettered, is left out; for another the outcomes so far are
    returned.
    """
    pieces = [_piece(1, 2), _piece(3, 4), _piece(5)]

    left, done = select_outstanding(pieces, _shown(n1="delivered", n2="dead_lettered", n3="delivered"))

    assert left == pieces[1:]
    assert {raw: shown.status for raw, shown in done.items()} == {_id(3): "delivered"}


@pytest.mark.parametrize("outcome", ["retry_scheduled", "unknown"])
def test_a_delivery_to_retry_is_not_left_out(outcome: str) -> None:
    """A failed delivery blocks those behind it in its order, and one without a response is unknown."""
    pieces = [_piece(1, 2)]

    left, done = select_outstanding(pieces, _shown(n1="delivered", n2=outcome))

    assert left == pieces
    assert done[_id(2)].status == outcome


def test_of_a_chunk_that_has_nothing_for_the_targets_that_are_pushed_to_nothing_is_left() -> None:
    """As where the close of a batch sends to its ordered target alone, and the chunk is another's."""
    assert select_outstanding([], _shown(n1="delivered")) == ([], {})
