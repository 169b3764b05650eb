"""Compares the deliveries in a settlement with those of its batch: a deficit is closed, a surplus stops the commit."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

from eventbridge.errors import ReconciliationError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model.batch import Batch
from eventbridge.model.row_vectors import Rows
from eventbridge.pipeline.settle.deliveries import batch_deliveries
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.pipeline.settle.settlement import publish_settlement, settlements
from eventbridge.pipeline.settle.verdicts import MATCHED_COLUMNS, Judge
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.columns import codes_of, flag_column, numbers_of

log = logging.getLogger(__name__)

#: Delivery ids that an error names before it says how many more there are.
_IDS_SHOWN = 20


def close_deficit(runtime: Runtime, batch: Batch, first: str) -> bool:
    """Give the verdict unknown, in a supplement, to the deliveries that are missing from the settlement.

    Returns whether there were any. A delivery that the settlement has twice, or that the batch never had, is a surplus:
    raises ReconciliationError with the ids.
    """
    named = _named(runtime, batch)
    judge = Judge(runtime, batch)
    missing = []
    for file, rows, table in batch_deliveries(runtime, batch, MATCHED_COLUMNS):
        lacking = named.take(file, rows)
        if lacking.any():
            missing.append(judge.verdicts(file, rows[lacking], table.filter(flag_column(lacking))))
    if surplus := named.left():
        raise _surplus(runtime, batch, surplus)
    if not missing:
        return False
    count = sum(table.num_rows for table in missing)
    log.error("ALARM the settlement of batch %s lacks %d deliveries: they become pending", batch.batch_id, count)
    number = int(runtime.ledger.files(batch.batch_id, "settlement")[-1].key) + 1
    publish_settlement(runtime, batch, number, missing, first)
    schedule_retries(runtime, batch.batch_id)
    return True


class _NamedRows:
    """How often a settlement names each row of delivery files, less how often it was found in the batch."""

    def __init__(self) -> None:
        self._counts: dict[str, Rows] = {}

    def add(self, file: str, rows: Rows) -> None:
        counts = np.bincount(rows)
        known = self._counts.get(file, np.zeros(0, np.int64))
        longer, shorter = (counts, known) if len(counts) > len(known) else (known, counts)
        longer[: len(shorter)] += shorter
        self._counts[file] = longer

    def take(self, file: str, rows: Rows) -> npt.NDArray[np.bool_]:
        """Count rows of the batch, and return which of them the settlement does not name."""
        counts = np.zeros(int(rows.max(initial=-1)) + 1, np.int64)
        self.add(file, rows[:0])
        known = self._counts[file]
        counts[: len(known)] = known[: len(counts)]
        order = np.argsort(rows, kind="stable")
        starts = np.searchsorted(rows[order], rows[order])  # for a row that occurs twice: its first position
        lacking = np.zeros(len(rows), bool)
        lacking[order] = np.arange(len(rows)) - starts >= counts[rows[order]]
        np.subtract.at(known, rows[~lacking], 1)
        return lacking

    def left(self) -> set[tuple[str, int]]:
        """Return the rows that are named too often."""
        return {(file, row) for file, counts in self._counts.items() for row in np.flatnonzero(counts > 0).tolist()}


def _named(runtime: Runtime, batch: Batch) -> _NamedRows:
    named = _NamedRows()
    for _, table in settlements(runtime, batch.batch_id, ["file", "row"]):
        file_of, files = codes_of(table["file"])
        rows = numbers_of(table["row"])
        for number, file in enumerate(files):
            named.add(file, rows[file_of == number])
    return named


def _surplus(runtime: Runtime, batch: Batch, places: set[tuple[str, int]]) -> ReconciliationError:
    ids = set()
    for _, table in settlements(runtime, batch.batch_id, ["file", "row", "delivery_id"]):
        ids |= {
            delivery_id_text(row["delivery_id"]) for row in table.to_pylist() if (row["file"], row["row"]) in places
        }
    found = sorted(ids)
    more = f" and {len(found) - _IDS_SHOWN} more" if len(found) > _IDS_SHOWN else ""
    return ReconciliationError(
        f"batch {batch.batch_id} cannot be committed: its settlement names deliveries that the batch does not have, "
        f"or names them twice: {', '.join(found[:_IDS_SHOWN])}{more}. Nothing was committed. "
        f"`eventbridge batch repair {batch.batch_id} --dry-run` shows how it is settled again"
    )
