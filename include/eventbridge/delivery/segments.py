"""Writes and reads segments, which record the outcomes of attempts, and finds the best outcome of each delivery."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.event.fingerprints import Ids
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.file_detail import Spent
from eventbridge.model.outcome import STATUS_RANK, StatusName
from eventbridge.model.partition import Partition
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout, schemas
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
from eventbridge.store.parquet import read_table, write_table
from eventbridge.store.protocol import Store

log = logging.getLogger(__name__)

#: The key prefix of segments that a streaming task wrote while its batch was open and had no chunks.
_OF_STREAMING_TASK = "streaming-"

#: The maximum number of rows in a row group. Segments are read completely, and reading one row group takes half as long
#: as reading four.
_GROUP_ROWS = 20_000


@dataclass(frozen=True)
class BestOutcome:
    """The best outcome of one delivery in the segments, and the highest attempt number seen."""

    status: StatusName
    attempts: int
    due_at: datetime | None
    reason: str | None
    detail: str | None
    responded_at: datetime | None


def segment_key(chunk_id: int, claim: int, number: int) -> str:
    """Return the ledger's key of a push's segment; the keys of a batch sort by chunk, claim and number."""
    return f"{chunk_id:06d}-{claim:06d}-{number:06d}"


def is_of_streaming_task(file: BatchFile) -> bool:
    """Return whether a streaming task wrote a segment. Such a segment may have deliveries of any chunk of its batch."""
    return file.key.startswith(_OF_STREAMING_TASK)


def write_open_segment(
    runtime: Runtime, batch: Batch, number: int, ends: Mapping[Partition, int], rows: pa.Table, cpu: int = 0
) -> bool:
    """Make an open batch's outcome rows durable and record them with its offsets; return False if the batch was taken
    over.

    Without rows, only the offsets are recorded. `cpu` is the CPU time that the rows took, in microseconds.
    """
    segment = None
    if rows.num_rows:
        path = layout.open_outcomes(batch.planned_at, batch.batch_id, number)
        write_table(runtime.store, path, rows, row_group_rows=_GROUP_ROWS)
        key = f"{_OF_STREAMING_TASK}{number:06d}"
        segment = BatchFile(batch.batch_id, "outcome", key, path, rows.num_rows, _sum_cpu(rows, cpu))
    return runtime.ledger.streaming.record(batch.batch_id, ends, segment)


def _sum_cpu(rows: pa.Table, cpu: int) -> Spent | None:
    """Return the CPU time of rows, and the number of rows for each target; None if no CPU time was measured."""
    if not cpu:
        return None
    counts = rows.group_by(["rule", "target"]).aggregate([([], "count_all")]).to_pylist()
    return Spent(cpu, {f"{each['rule']}/{each['target']}": each["count_all"] for each in counts})


def write_segment(
    runtime: Runtime, batch: Batch, chunk_id: int, claim: int, number: int, rows: pa.Table, cpu: int = 0
) -> bool:
    """Make outcome rows durable and record them under a claim; return False if the claim is lost.

    Rows of a lost claim also count as long as the batch is not settled, because they record what was sent. The file is
    written first and recorded second, so a segment counts if and only if the ledger lists it. `cpu` is the CPU time
    that the rows took, in microseconds.
    """
    path = layout.outcomes(batch.planned_at, batch.batch_id, chunk_id, claim, number)
    write_table(runtime.store, path, rows, row_group_rows=_GROUP_ROWS)
    file = BatchFile(batch.batch_id, "outcome", segment_key(chunk_id, claim, number), path, rows.num_rows)
    if runtime.ledger.chunks.record_segment(file, chunk_id, claim, cpu):
        return True
    counts = runtime.ledger.chunks.record_late_segment(file)
    log.warning(
        "chunk %s of batch %s: another push or the settlement took over claim %s; the last %d responses are %s",
        *(chunk_id, batch.batch_id, claim, rows.num_rows, "recorded" if counts else "too late, and not recorded"),
    )
    return False


def segments(runtime: Runtime, batch_id: str, chunk_ids: Iterable[int] | None = None) -> list[BatchFile]:
    """Return the recorded segments of a batch in the order of their keys; with `chunk_ids`, only those that may have
    deliveries of these chunks.

    Pass several chunks in one call, because a segment of a streaming task may have deliveries of any chunk and is
    returned once per call.
    """
    files = runtime.ledger.files.list_for_batch(batch_id, "outcome")
    if chunk_ids is None:
        return files
    prefixes = tuple(f"{chunk_id:06d}-" for chunk_id in chunk_ids)
    return [file for file in files if prefixes and (file.key.startswith(prefixes) or is_of_streaming_task(file))]


def responses_in(runtime: Runtime, files: Iterable[BatchFile]) -> Responses:
    """Return the responses in segments, as columns."""
    return read_responses(runtime.store, (file.path for file in files if file.path is not None))


def best_outcomes(rows: pa.Table) -> dict[bytes, BestOutcome]:
    """Return the best outcomes in rows of responses, by delivery id; rows without a delivery id are omitted."""
    return {
        row.pop("delivery_id"): BestOutcome(**row)
        for row in rows.filter(pc.field("delivery_id").is_valid()).to_pylist()
    }


#: The columns of an outcome row that determine the status of a delivery. The response's text is read only for dead
#: letters.
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
    """The best outcome of each delivery in some segments, by rank and then by the latest attempt.

    `rows` are all rows of the segments; `best` has the index of the best row of each delivery, sorted by delivery id.
    The columns are `delivery_id`, `status` (a dictionary of all STATUS_RANK, in that order), `attempts` (in a best row,
    the highest number in any row of the delivery), `due_at`, `reason`, `detail` and `responded_at`.
    """

    rows: pa.Table
    best: _Vector
    first: _Half  # first halves of the best rows' ids
    second: _Half

    @property
    def table(self) -> pa.Table:
        """Only the best rows."""
        return self.rows.take(column_of(self.best, pa.int64()))

    def rows_of(self, ids: Ids) -> pa.Table:
        """Return the best rows of deliveries, in the order of `ids`; all columns of a row are null if no segment has
        the delivery."""
        first, second = _halves(ids)
        order = np.argsort(first)  # sorted lookups take a fifth of the time
        at = np.empty(len(first), np.int64)
        at[order] = np.searchsorted(self.first, first[order])
        while True:  # repeats only for ids with the same first half, so in practice never
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
    """Return the responses in segments. The order of segments and of their rows does not matter."""
    tables = [_rows(read_table(store, path, columns=_COLUMNS, coded=_TEXTS)) for path in paths]
    rows = pa.concat_tables(tables or [_rows(schemas.OUTCOME.empty_table())]).unify_dictionaries().combine_chunks()
    first, second = _halves(ids_of(rows["delivery_id"]))
    best = np.argsort(first)
    if (first[best[1:]] == first[best[:-1]]).any():
        best, attempts = _best_rows(rows, first, second)
        rows = rows.set_column(rows.column_names.index("attempts"), "attempts", column_of(attempts, pa.int32()))
    return Responses(rows, best, first[best], second[best])


def _best_rows(rows: pa.Table, first: _Half, second: _Half) -> tuple[_Vector, _Vector]:
    """Return the best row of each delivery, sorted by id, and the attempts of all rows; in a best row, the number is
    the highest of the delivery."""
    codes, reasons = codes_of(rows["reason"])
    in_order = np.argsort(np.argsort(np.array([*reasons, ""], dtype=object)))  # null, NO_CODE, sorts like ""
    attempts = numbers_of(rows["attempts"])
    order = np.lexsort((in_order[codes], -attempts, codes_of(rows["status"])[0], second, first))
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
        "status": texts(ranks[outcomes], list(STATUS_RANK)),
        "attempts": table["attempt"],
        "due_at": table["due_at"],
        "reason": coded(table["reason"]),
        "detail": _details(table),
        "responded_at": times(responded_at),
    }
    return pa.Table.from_arrays(list(columns.values()), list(columns))


def _details(table: pa.Table) -> pa.DictionaryArray:
    """Return the detail of each response, computing it once for equal responses."""
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
