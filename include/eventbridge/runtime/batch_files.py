"""Lists the files of batches, the newest batch first, and reads dead letter files.

Files are listed only as far as the caller iterates. A damaged dead letter file is skipped if the caller permits it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.errors import (
    NewerFormatError,
    NotFoundError,
    ReconciliationError,
    StoreFileDamaged,
    StoreFileMissing,
    StoreFileUnreadable,
)
from eventbridge.event.ids import Fingerprint
from eventbridge.model.batch import Batch, BatchKind, FileKind, FilePosition
from eventbridge.model.cursor import Cursor
from eventbridge.model.storage import Kept
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.parquet import parts_of, read_rows, read_table
from eventbridge.store.protocol import Store

_AT_ONCE = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

#: The dead letter files that were skipped because they cannot be read, with the error of each.
Damaged = dict[str, ReconciliationError | NewerFormatError | StoreFileUnreadable]


def newest_files(runtime: Runtime, kind: FileKind, what: Kept) -> Iterator[FilePosition]:
    """Yield the recorded files of a kind, the newest batch first, of all batches that still keep the records `what`."""
    yield from _files_behind(runtime, kind, what, None, None, None)


def files_from(
    runtime: Runtime,
    kind: FileKind,
    what: Kept,
    cursor: Cursor | None,
    *,
    bus: str | None = None,
    batch_kind: BatchKind | None = None,
) -> Iterator[FilePosition]:
    """Yield the files of `newest_files` from a cursor on, beginning with the cursor's own file if it still exists.

    If `bus` or `batch_kind` is set, only files of batches with this bus or kind are yielded. Both also apply to the
    batch in `cursor`, because a caller may have forged the cursor.
    """
    behind = None
    if cursor is not None:
        behind = FilePosition(_EPOCH + cursor.planned_at * _MICROSECOND, cursor.batch_id, cursor.key, "")
        here = _batch(runtime, cursor.batch_id)
        if here is not None and bus in (None, here.bus) and batch_kind in (None, here.kind):
            for each in runtime.ledger.files.list_for_batch(cursor.batch_id, kind):
                if each.key == cursor.key and each.path is not None:
                    yield FilePosition(here.planned_at, each.batch_id, each.key, each.path)
    yield from _files_behind(runtime, kind, what, bus, batch_kind, behind)


def _batch(runtime: Runtime, batch_id: str) -> Batch | None:
    try:
        return runtime.ledger.batches.get(batch_id)
    except NotFoundError:  # retention removed it
        return None


def cursor_at(file: FilePosition, row: int = -1) -> Cursor:
    """Return the cursor for a row of a file. Row -1 stands for the position before the first row."""
    return Cursor((file.planned_at - _EPOCH) // _MICROSECOND, file.batch_id, file.key, row)


def rows_after(cursor: Cursor | None, file: FilePosition) -> int:
    """Return the number of a file's last row at or before a cursor, or -1 if there is none."""
    return cursor.row if cursor is not None and (cursor.batch_id, cursor.key) == (file.batch_id, file.key) else -1


def _files_behind(
    runtime: Runtime,
    kind: FileKind,
    what: Kept,
    bus: str | None,
    batch_kind: BatchKind | None,
    behind: FilePosition | None,
) -> Iterator[FilePosition]:
    while True:
        found = runtime.ledger.files.newest(kind, what, _AT_ONCE, bus=bus, batch_kind=batch_kind, behind=behind)
        yield from found
        if len(found) < _AT_ONCE:
            return
        behind = found[-1]


def dead_letter_files(runtime: Runtime, *, before: datetime | None = None) -> list[str]:
    """Return the recorded dead letter files, those of the newest batch first.

    If `before` is set, only files of batches that were planned before this time are returned.
    """
    found = newest_files(runtime, "dead_letter", "dead_letters")
    return [each.path for each in found if before is None or each.planned_at < before]


def read_dead_letters(
    store: Store, file: str, rows: str | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return the rows of a dead letter file, limited to a row set and to named columns if they are given.

    If the file is missing or damaged, raises ReconciliationError, which names the command that repairs its batch.
    """
    with naming_the_repair(layout.batch_of_dead_letters(file), "read"):
        return read_table(store, file, columns) if rows is None else read_rows(store, file, rows, columns)


def read_unless_damaged(
    store: Store, file: str, rows: str | None = None, columns: Sequence[str] | None = None, *, damaged: Damaged | None
) -> pa.Table | None:
    """Read a file like `read_dead_letters`. If that fails, add the file and its error to `damaged`, and return None.

    A file that is already in `damaged` is not read again. If `damaged` is None, the error is raised.
    """
    if damaged is not None and file in damaged:
        return None
    with _adding_to(damaged, file):
        return read_dead_letters(store, file, rows, columns)
    return None


def parts_unless_damaged(
    store: Store, file: str, columns: Sequence[str], *, damaged: Damaged | None
) -> Iterator[tuple[npt.NDArray[np.int64], pa.Table]]:
    """Yield all rows of a dead letter file as small tables, like `parts_of`, so that long values fit into memory.

    If the file cannot be read, it is added to `damaged`, and its remaining rows are not yielded. If `damaged` is None,
    the error is raised.
    """
    if damaged is not None and file in damaged:
        return
    with _adding_to(damaged, file), naming_the_repair(layout.batch_of_dead_letters(file), "read"):
        yield from parts_of(store, file, columns)


@contextmanager
def _adding_to(damaged: Damaged | None, file: str) -> Iterator[None]:
    """Add a file that cannot be read to `damaged`, with the error. If `damaged` is None, raise the error."""
    try:
        yield
    except (ReconciliationError, NewerFormatError, StoreFileUnreadable) as error:
        if damaged is None:
            raise
        damaged[file] = error


def read_taken_ids(runtime: Runtime, batch: Batch) -> dict[str, Fingerprint]:
    """Return the fingerprint of a batch's redriven deliveries for each `<rule>/<target>`, with each delivery once."""
    ids: dict[str, set[bytes]] = {}
    for each in runtime.ledger.redrives.list_taken_by(batch.batch_id):
        table = read_dead_letters(runtime.store, each.file, each.rows, ["delivery_id", "rule", "target"])
        for row in table.to_pylist():
            ids.setdefault(f"{row['rule']}/{row['target']}", set()).add(row["delivery_id"])
    return {key: Fingerprint.from_ids(found) for key, found in ids.items()}


@contextmanager
def naming_the_repair(batch_id: str, action: str) -> Iterator[None]:
    """Raise ReconciliationError, which says how to repair the batch, if a file is missing or damaged."""
    try:
        yield
    except (StoreFileMissing, StoreFileDamaged) as error:
        raise ReconciliationError(
            f"batch {batch_id} cannot be {action}: {str(error).rstrip('.')}. "
            f"If there is no copy, `eventbridge batches repair {batch_id} --dry-run` shows what can be recreated"
        ) from error
