"""Lists and reads the dead letter files of batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from eventbridge.errors import NewerFormatError, ReconciliationError, StoreFileUnreadable
from eventbridge.event.ids import Fingerprint
from eventbridge.model.batch import Batch
from eventbridge.runtime.damaged_files import naming_the_repair
from eventbridge.runtime.newest_files import newest_files
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.parquet import read_rows, read_table
from eventbridge.store.protocol import Store

#: The errors of unreadable dead letter files that were skipped, by file.
Damaged = dict[str, ReconciliationError | NewerFormatError | StoreFileUnreadable]


def dead_letter_files(runtime: Runtime, *, before: datetime | None = None) -> list[str]:
    """Return the recorded dead letter files, the newest batch's first; only of batches planned before a time."""
    found = newest_files(runtime, "dead_letter", "dead_letters")
    return [each.path for each in found if before is None or each.planned_at < before]


def read_dead_letters(
    store: Store, file: str, rows: str | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return the rows of a row set, or all rows, of a dead letter file, with the named columns or all.

    Raises ReconciliationError, which names the repair of the file's batch, if it cannot be read.
    """
    with naming_the_repair(layout.batch_of_dead_letters(file), "read"):
        return read_table(store, file, columns) if rows is None else read_rows(store, file, rows, columns)


def read_unless_damaged(
    store: Store, file: str, rows: str | None = None, columns: Sequence[str] | None = None, *, damaged: Damaged | None
) -> pa.Table | None:
    """Return what `read_dead_letters` returns; None for a file that cannot be read, which is added to `damaged`.

    A file that is in `damaged` already is not read again. Without `damaged` no file is skipped.
    """
    if damaged is None:
        return read_dead_letters(store, file, rows, columns)
    if file in damaged:
        return None
    try:
        return read_dead_letters(store, file, rows, columns)
    except (ReconciliationError, NewerFormatError, StoreFileUnreadable) as error:
        damaged[file] = error
        return None


def taken_ids(runtime: Runtime, batch: Batch) -> dict[str, Fingerprint]:
    """Return the fingerprints, by `<rule>/<target>`, of the redriven deliveries of a batch, each counted once."""
    ids: dict[str, set[bytes]] = {}
    for each in runtime.ledger.redriven_by(batch.batch_id):
        table = read_dead_letters(runtime.store, each.file, each.rows, ["delivery_id", "rule", "target"])
        for row in table.to_pylist():
            ids.setdefault(f"{row['rule']}/{row['target']}", set()).add(row["delivery_id"])
    return {key: Fingerprint.of(found) for key, found in ids.items()}
