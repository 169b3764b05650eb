"""Outcome segments: the attempts that push tasks recorded, and how several rows of one delivery are combined."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.delivery.responses import Responses, read_responses
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.file_detail import Spent
from eventbridge.model.outcome import StatusName
from eventbridge.model.partition import Partition
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.parquet import write_table

log = logging.getLogger(__name__)

#: Prefix of the keys of segments that a streaming task wrote while its batch was open and had no chunks.
_OF_STREAMING_TASK = "streaming-"

#: Segments are read as a whole: one row group costs half as much as four.
_GROUP_ROWS = 20_000


@dataclass(frozen=True)
class BestOutcome:
    """The best outcome of one delivery in the segments, and the highest attempt number seen."""

    verdict: StatusName
    attempts: int
    due_at: datetime | None
    reason: str | None
    detail: str | None
    responded_at: datetime | None


def segment_key(chunk_id: int, claim: int, number: int) -> str:
    """Return the ledger's key of a segment; keys of a batch sort by chunk, claim and number."""
    return f"{chunk_id:06d}-{claim:06d}-{number:06d}"


def is_of_streaming_task(file: BatchFile) -> bool:
    """Return whether a streaming task wrote a segment: it may have deliveries of any chunk of its batch."""
    return file.key.startswith(_OF_STREAMING_TASK)


def write_open_segment(
    runtime: Runtime, batch: Batch, number: int, ends: Mapping[Partition, int], rows: pa.Table, cpu: int = 0
) -> bool:
    """Make outcome rows of an open batch durable, and record them with its offsets; False: the batch is lost.

    Without rows, only the offsets are recorded. `cpu`: CPU microseconds that the rows took.
    """
    segment = None
    if rows.num_rows:
        path = layout.open_outcomes(batch.planned_at, batch.batch_id, number)
        write_table(runtime.store, path, rows, row_group_rows=_GROUP_ROWS)
        key = f"{_OF_STREAMING_TASK}{number:06d}"
        segment = BatchFile(batch.batch_id, "outcome", key, path, rows.num_rows, _spent(rows, cpu))
    return runtime.ledger.record_open(batch.batch_id, ends, segment)


def _spent(rows: pa.Table, cpu: int) -> Spent | None:
    """Return the CPU time of rows, and their numbers by target."""
    if not cpu:
        return None
    counts = rows.group_by(["rule", "target"]).aggregate([([], "count_all")]).to_pylist()
    return Spent(cpu, {f"{each['rule']}/{each['target']}": each["count_all"] for each in counts})


def write_segment(
    runtime: Runtime, batch: Batch, chunk_id: int, claim: int, number: int, rows: pa.Table, cpu: int = 0
) -> bool:
    """Make outcome rows durable and record them under a claim; False: the claim is lost.

    Rows of a lost claim count as well, as long as the batch is not settled, because they record what was sent. The file
    comes first, its record second: a segment counts if and only if the ledger names it. `cpu`: CPU microseconds that
    the rows took.
    """
    path = layout.outcomes(batch.planned_at, batch.batch_id, chunk_id, claim, number)
    write_table(runtime.store, path, rows, row_group_rows=_GROUP_ROWS)
    file = BatchFile(batch.batch_id, "outcome", segment_key(chunk_id, claim, number), path, rows.num_rows)
    if runtime.ledger.record_segment(file, chunk_id, claim, cpu):
        return True
    counts = runtime.ledger.record_late_segment(file)
    log.warning(
        "chunk %s of batch %s: another push or the settlement took over claim %s; the last %d responses are %s",
        *(chunk_id, batch.batch_id, claim, rows.num_rows, "recorded" if counts else "too late, and not recorded"),
    )
    return False


def segments(runtime: Runtime, batch_id: str, chunk_ids: Iterable[int] | None = None) -> list[BatchFile]:
    """Return the recorded segments of a batch, in order of their keys, or those that may have deliveries of some
    chunks.

    Ask for several chunks at once: a segment of a streaming task may have deliveries of any chunk, and is returned
    once.
    """
    files = runtime.ledger.files(batch_id, "outcome")
    if chunk_ids is None:
        return files
    prefixes = tuple(f"{chunk_id:06d}-" for chunk_id in chunk_ids)
    return [file for file in files if prefixes and (file.key.startswith(prefixes) or is_of_streaming_task(file))]


def responses_in(runtime: Runtime, files: Iterable[BatchFile]) -> Responses:
    """Return the responses in segments, as columns."""
    return read_responses(runtime.store, (file.path for file in files if file.path is not None))


def best_outcomes(rows: pa.Table) -> dict[bytes, BestOutcome]:
    """Return the best outcome by delivery id, of rows of responses; rows without a delivery id are left out."""
    return {
        row.pop("delivery_id"): BestOutcome(**row)
        for row in rows.filter(pc.field("delivery_id").is_valid()).to_pylist()
    }
