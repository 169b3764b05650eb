"""Reads dead letters back out of the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eventbridge.stages.workplace import Workplace
from eventbridge.store import schemas
from eventbridge.store.parquet import read_table

_LIST_COLUMNS = [
    name for name in schemas.DEAD_LETTER.names if name not in ("event", "request", "request_headers", "attempts")
]


def dead_letters(
    work: Workplace, *, rule: str | None = None, reason: str | None = None, whole: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield dead letters, those of the newest batch first; `whole` = with event, request and attempts."""
    columns = None if whole else _LIST_COLUMNS
    for batch in work.ledger.batches(limit=None):
        for file in work.ledger.files(batch.batch_id, "dead_letter"):
            if file.path is None:
                continue
            for record in read_table(work.store, file.path, columns=columns).to_pylist():
                if rule in (None, record["rule"]) and reason in (None, record["reason"]):
                    yield record
