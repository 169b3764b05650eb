"""Creates an archive without a bus, for benchmarks: batches in store and ledger as `buffer` lands them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
from benchmarks.bench_site import BUS
from sqlalchemy import create_engine

from eventbridge.event.ids import new_batch_id
from eventbridge.ledger.batches import batch as batches
from eventbridge.ledger.files import batch_file as files
from eventbridge.model.file_detail import LandedRange
from eventbridge.model.partition import Partition
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.parquet import write_table
from eventbridge.store.schemas import ROW_GROUP_ROWS


class Archived(NamedTuple):
    """The ledger's rows for one committed batch: the batch's own row, and those of its buffer files."""

    batch: dict[str, Any]
    files: list[dict[str, Any]]

    @property
    def paths(self) -> list[str]:
        """The folder of the batch's buffer files in the store."""
        return [file["path"] for file in self.files]


def archive_batch(runtime: Runtime, rule_set: str, at: datetime, tables: Sequence[pa.Table]) -> Archived:
    """Write tables of schema BUFFER, of one partition in its order, as a batch that was planned and committed then."""
    batch_id = new_batch_id(at)
    found = []
    for table in tables:
        path = layout.buffer(BUS, at, batch_id, uuid.uuid4().hex)
        write_table(runtime.store, path, table, row_group_rows=ROW_GROUP_ROWS)
        start, end = table["offset"][0].as_py(), table["offset"][-1].as_py() + 1
        partition = Partition(*(table[name][0].as_py() for name in ("topic", "broker", "partition_id")))
        landed = LandedRange(partition=partition, start=start, end=end, read=end - start, valid=end - start)
        found.append(
            {
                "batch_id": batch_id,
                "kind": "buffer",
                "key": f"{start:020d}",
                "path": path,
                "rows": table.num_rows,
                "detail": landed,
            }
        )
    row = {
        "batch_id": batch_id,
        "kind": "normal",
        "runner": "archive",
        "bus": BUS,
        "state": "committed",
        "rule_set": rule_set,
        "planned_at": at,
        "replay_id": "",
        "committed_at": at,
        "bus_committed_at": at,
    }
    return Archived(row, found)


def record(runtime: Runtime, archived: Iterable[Archived]) -> None:
    """Put the batches into the ledger, in one transaction."""
    made = list(archived)
    engine = create_engine(runtime.settings.ledger_url)
    with engine.begin() as connection:
        connection.execute(batches.insert(), [each.batch for each in made])
        connection.execute(files.insert(), [file for each in made for file in each.files])
    engine.dispose()
