"""Targets whose responses hang, trickle or never end delay no other target of the chunk, and use no space."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

from pipeline.delivering import Sending, http, segment_rows

from eventbridge.delivery.push import push

_COUNT = 200


def _ended_at(row: dict[str, Any]) -> datetime:
    ended: datetime = row["started_at"] + timedelta(milliseconds=row["duration_ms"])
    return ended


def test_the_healthy_target_has_everything_before_the_others_end(sending: Sending) -> None:
    """One chunk, four targets: hanging, slow, huge responses cost their own target alone; 20 KB are kept of a body."""
    batch = sending.routed(
        _COUNT,
        settings={"push_timeout": 8},
        drip=http("/drip/among", timeout="3s"),
        hang=http("/hang/among", timeout="3s"),
        healthy="/healthy/among",
        huge=http("/huge/among", timeout="10s", max_in_flight=1),
    )
    runtime = sending.runtime
    assert [chunk.rows for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id)] == [4 * _COUNT]

    push(runtime, batch.batch_id, 0)

    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in segment_rows(runtime, batch.batch_id):
        rows[row["target"]].append(row)
    assert [row["outcome"] for row in rows["healthy"]] == ["delivered"] * _COUNT
    done = max(map(_ended_at, rows["healthy"]))
    for slow in ("drip", "hang"):
        assert {row["error_class"] for row in rows[slow]} <= {"Timeout", "Interrupted"}
        assert done < min(map(_ended_at, rows[slow])), f"{slow} did not respond before its timeout"
    assert done < max(map(_ended_at, rows["huge"]))
    assert {(row["outcome"], row["code"], len(row["response_head"])) for row in rows["huge"]} == {
        ("delivered", 200, 20 * 1024)
    }
