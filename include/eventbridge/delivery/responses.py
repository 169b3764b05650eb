"""The responses in segments, as columns: the best outcome of each delivery, found by delivery id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.event.fingerprints import Ids
from eventbridge.model.outcome import STATUS_RANK
from eventbridge.store import schemas
from eventbridge.store.columns import (
    NO_CODE,
    NO_TIME,
    coded,
    codes_of,
    column_of,
    flags_of,
    ids_of,
    numbers_of,
    texts,
    times,
    times_of,
    vector_of,
)
from eventbridge.store.parquet import read_table
from eventbridge.store.protocol import Store

#: Columns of an outcome row that a verdict needs; the response's text is only read for dead letters.
_COLUMNS = [
    "delivery_id", "attempt", "sent", "started_at", "duration_ms", "outcome", "due_at", "reason", "error_class",
    "error", "code",
]  # fmt: skip
_TEXTS = ["outcome", "reason", "error_class", "error"]
_RANK: dict[str, int] = {name: rank for rank, name in enumerate(STATUS_RANK)}

_Vector = npt.NDArray[np.int64]
_Half = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Responses:
    """The best outcome of each delivery in some segments: by rank, then by the latest attempt.

    `rows` are all rows of the segments, and `best` has the index of one for each delivery, sorted by id. Columns are
    `delivery_id`, `verdict` (a dictionary of all STATUS_RANK, in that order), `attempts` (in the best row: the highest
    number seen), `due_at`, `reason`, `detail` and `responded_at`.
    """

    rows: pa.Table
    best: _Vector
    first: _Half  # halves of the best rows' ids
    second: _Half

    @property
    def table(self) -> pa.Table:
        """The best rows alone."""
        return self.rows.take(column_of(self.best, pa.int64()))

    def of(self, ids: Ids) -> pa.Table:
        """Return the rows of deliveries, in their order; all columns are null for one that no segment has."""
        first, second = _halves(ids)
        order = np.argsort(first)  # sorted lookups take a fifth of the time
        at = np.empty(len(first), np.int64)
        at[order] = np.searchsorted(self.first, first[order])
        while True:  # for ids that share a half, practically never more than one
            other = at < len(self.first)
            other[other] = (self.first[at[other]] == first[other]) & (self.second[at[other]] != second[other])
            if not other.any():
                break
            at += other
        missing = at == len(self.first)
        missing[~missing] = self.first[at[~missing]] != first[~missing]
        if missing.any():
            at[missing] = 0
            return self.rows.take(column_of(np.append(self.best, 0)[at], pa.int64(), missing))
        return self.rows.take(column_of(self.best[at], pa.int64()))


def read_responses(store: Store, paths: Iterable[str]) -> Responses:
    """Return the responses in segments; the order of segments and of their rows does not matter."""
    tables = [_rows(read_table(store, path, columns=_COLUMNS, coded=_TEXTS)) for path in paths]
    rows = pa.concat_tables(tables or [_rows(schemas.OUTCOME.empty_table())]).unify_dictionaries().combine_chunks()
    first, second = _halves(ids_of(rows["delivery_id"]))
    best = np.argsort(first)
    if (first[best[1:]] == first[best[:-1]]).any():
        best, attempts = _best(rows, first, second)
        rows = rows.set_column(rows.column_names.index("attempts"), "attempts", column_of(attempts, pa.int32()))
    return Responses(rows, best, first[best], second[best])


def _best(rows: pa.Table, first: _Half, second: _Half) -> tuple[_Vector, _Vector]:
    """Return the best row of each delivery, sorted by id, and all attempts, raised to the highest in the best rows."""
    codes, reasons = codes_of(rows["reason"])
    in_order = np.argsort(np.argsort(np.array([*reasons, ""], dtype=object)))  # that of null, NO_CODE, is that of ""
    attempts = numbers_of(rows["attempts"])
    order = np.lexsort((in_order[codes], -attempts, codes_of(rows["verdict"])[0], second, first))
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)
    starts = np.flatnonzero(new)
    best = order[starts]
    attempts = attempts.copy()
    attempts[best] = np.maximum.reduceat(attempts[order], starts)
    return best, attempts


def _halves(ids: Ids) -> tuple[_Half, _Half]:
    halves = ids.view(">u8").astype(np.uint64)
    return np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1])


def _rows(table: pa.Table) -> pa.Table:
    """Return rows of a segment in the columns of `Responses.table`."""
    outcomes, names = codes_of(table["outcome"])
    ranks = np.array([_RANK[name] for name in names], np.int64)
    took = np.rint(vector_of(table["duration_ms"]) * 1000).astype(np.int64)
    responded_at = np.where(flags_of(table["sent"]), times_of(table["started_at"]) + took, NO_TIME)
    columns = {
        "delivery_id": table["delivery_id"],
        "verdict": texts(ranks[outcomes], list(STATUS_RANK)),
        "attempts": table["attempt"],
        "due_at": table["due_at"],
        "reason": coded(table["reason"]),
        "detail": _details(table),
        "responded_at": times(responded_at),
    }
    return pa.Table.from_arrays(list(columns.values()), list(columns))


def _details(table: pa.Table) -> pa.DictionaryArray:
    """Return the detail of each response; computed once for equal ones."""
    classes, class_names = codes_of(table["error_class"])
    errors, error_texts = codes_of(table["error"])
    status = numbers_of(table["code"])
    kinds = (classes * (len(error_texts) + 1) + errors) * (1 << 32) + status
    _, firsts, found = np.unique(kinds, return_index=True, return_inverse=True)
    made = [
        _detail(
            None if classes[row] == NO_CODE else class_names[classes[row]],
            int(status[row]),
            None if errors[row] == NO_CODE else error_texts[errors[row]],
        )
        for row in firsts.tolist()
    ]
    return texts(found, made)


def _detail(error_class: str | None, status: int, error: str | None) -> str | None:
    code = f"HTTP {status}" if status else ""
    parts = [error_class, code if code not in (error or "") else None, error]
    return ": ".join(part for part in parts if part) or None
