"""The outcome that segments show of each delivery, found among many."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from eventbridge.delivery.segments import read_responses
from eventbridge.event.ids import delivery_id
from eventbridge.model.outcome import STATUS_RANK
from eventbridge.store import schemas
from eventbridge.store.columns import ids_of
from eventbridge.store.parquet import write_table
from eventbridge.testing.store import InMemoryStore

AT = datetime(2026, 3, 1, tzinfo=UTC)
IDS = [delivery_id("bus", "source", str(number), "rule", "target") for number in range(40)]


def _row(chance: random.Random, raw: bytes) -> dict[str, Any]:
    outcome = chance.choice(STATUS_RANK)
    return {
        "delivery_id": raw,
        "rule": "rule",
        "target": "target",
        "attempt": chance.randint(0, 3),
        "sent": chance.random() < 0.7,
        "started_at": AT + timedelta(seconds=chance.randint(0, 9)),
        "duration_ms": chance.random() * 100,
        "outcome": outcome,
        "due_at": AT + timedelta(hours=chance.randint(1, 9)) if outcome == "retry_scheduled" else None,
        "reason": chance.choice([None, "Timeout", "HTTP 503"]),
        "code": chance.choice([None, 200, 503]),
        "error_class": chance.choice([None, "Timeout"]),
        "error": chance.choice([None, "", "no response", "it said HTTP 503"]),
    }


def _detail(row: dict[str, Any]) -> str | None:
    code = f"HTTP {row['code']}" if row["code"] and f"HTTP {row['code']}" not in (row["error"] or "") else None
    return ": ".join(part for part in (row["error_class"], code, row["error"]) if part) or None


def _expected(rows: list[dict[str, Any]]) -> dict[str, Any]:
    best = min(rows, key=lambda row: (STATUS_RANK.index(row["outcome"]), -row["attempt"], row["reason"] or ""))
    # rows that are equal so far may be of either: then all that follows is compared as a set
    equals = [
        row for row in rows if all((row[name] or "") == (best[name] or "") for name in ("outcome", "attempt", "reason"))
    ]
    return {
        "status": best["outcome"],
        "attempts": max(row["attempt"] for row in rows),
        "reasons": {row["reason"] for row in equals},
        "details": {_detail(row) for row in equals},
        "due": {row["due_at"] for row in equals},
        "responded": {
            row["started_at"] + timedelta(milliseconds=row["duration_ms"]) if row["sent"] else None for row in equals
        },
    }


@pytest.mark.parametrize("seed", range(8))
def test_the_best_outcome_is_found(seed: int) -> None:
    """By rank, then by attempt, whatever segments its rows are in and in whatever order."""
    chance = random.Random(seed)
    store = InMemoryStore()
    rows = [_row(chance, chance.choice(IDS)) for _ in range(chance.choice([3, 30, 200]))]
    paths = []
    for number in range(4):
        path = f"outcomes/{number}.parquet"
        write_table(store, path, pa.Table.from_pylist(rows[number::4], schema=schemas.OUTCOME))
        paths.append(path)
    chance.shuffle(paths)
    wanted = chance.sample(IDS, len(IDS))

    found = read_responses(store, paths).rows_of(ids_of(pa.chunked_array([pa.array(wanted, pa.binary(16))])))

    for raw, each in zip(wanted, found.to_pylist(), strict=True):
        its_rows = [row for row in rows if row["delivery_id"] == raw]
        if not its_rows:
            assert set(each.values()) == {None}
            continue
        expected = _expected(its_rows)
        assert (each["delivery_id"], each["status"], each["attempts"]) == (
            raw,
            expected["status"],
            expected["attempts"],
        )
        assert each["reason"] in expected["reasons"]
        assert each["detail"] in expected["details"]
        assert each["due_at"] in expected["due"]
        assert each["responded_at"] in expected["responded"]


def test_ids_that_share_a_half_are_distinguished() -> None:
    """Also if it is the half by which they are sorted."""
    store = InMemoryStore()
    raws = [bytes(8) + bytes([number]) * 8 for number in (3, 1, 2)]
    chance = random.Random(1)
    rows = [_row(chance, raw) | {"attempt": number} for number, raw in enumerate(raws)]
    write_table(store, "outcomes/a.parquet", pa.Table.from_pylist(rows, schema=schemas.OUTCOME))
    wanted = np.frombuffer(b"".join([*reversed(raws), bytes(8) + b"\x04" * 8, bytes(16)]), np.uint8).reshape(-1, 16)

    found = read_responses(store, ["outcomes/a.parquet"]).rows_of(wanted)

    assert found["attempts"].to_pylist() == [2, 1, 0, None, None]


def test_without_segments_nothing_is_found() -> None:
    """Every column is null."""
    ids = np.frombuffer(b"".join(IDS), np.uint8).reshape(-1, 16)

    found = read_responses(InMemoryStore(), []).rows_of(ids)

    assert found.num_rows == len(IDS)
    assert {column.null_count for column in found.columns} == {len(IDS)}
