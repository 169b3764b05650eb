"""Records the files of batches in the ledger. The work of a stage counts as finished once its file is recorded."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from eventbridge.errors import SettledAgainError
from eventbridge.ledger.batches import AT_WORK, OLDER, batch, is_in_state
from eventbridge.ledger.database import Aggregate, Database
from eventbridge.ledger.definitions import FileDetailText, insert_or_skip, metadata, one_of, word
from eventbridge.model.batch import BatchFile, BatchKind, BatchState, FileKind, FilePosition
from eventbridge.model.file_detail import decode_detail
from eventbridge.model.storage import STEPS, Kept

batch_file = sa.Table(
    "batch_file",
    metadata,
    sa.Column("batch_id", sa.Text, sa.ForeignKey("batch.batch_id"), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("path", sa.Text),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("detail", FileDetailText, nullable=False),
    sa.PrimaryKeyConstraint("batch_id", "kind", "key"),
    one_of("kind", FileKind),
)

#: Kinds of files that nearly every batch has, so that the newest files belong to the newest batches.
_IN_MOST_BATCHES = frozenset(("buffer", "delivery", "outcome"))

#: Deletes the record of a file; the file stays in the store.
FORGET_FILE = sa.delete(batch_file).where(
    batch_file.c.batch_id == sa.bindparam("of_batch"),
    batch_file.c.kind == sa.bindparam("of_kind"),
    batch_file.c.key == sa.bindparam("of_key"),
)

_columns = [
    sa.type_coerce(column, sa.Text).label("detail") if column.name == "detail" else column for column in batch_file.c
]

#: The recorded files of a batch and kind, in order of their keys; their details as text.
FILES = (
    sa.select(*_columns)
    .where(batch_file.c.batch_id == sa.bindparam("of_batch"), batch_file.c.kind == sa.bindparam("of_kind"))
    .order_by(batch_file.c.key)
)

#: The keys of a batch's settlements, in order; a batch that was settled again has a different first settlement.
SETTLEMENTS = (
    sa.select(batch_file.c.key)
    .where(batch_file.c.batch_id == sa.bindparam("of_batch"), batch_file.c.kind == "settlement")
    .order_by(batch_file.c.key)
)

#: Deletes the records of settlements and dead letters of a batch; the files stay in the store.
FORGET_SETTLEMENT = sa.delete(batch_file).where(
    batch_file.c.batch_id == sa.bindparam("of_batch"), batch_file.c.kind.in_(["settlement", "dead_letter"])
)


def select_newest_files(
    kind: str, kept: Collection[str], limit: int, *, bus: str | None, batch_kind: str | None, older: bool
) -> sa.Select[Any]:
    """Return the query for at most `limit` files of a kind, from batches with the given `kept`, newest batch first.

    If `bus` or `batch_kind` is set, only files of matching batches are returned; if `older`, only files that follow a
    given one.
    """
    name: sa.ColumnElement[Any] = batch.c.batch_id
    batch_kept: sa.ColumnElement[Any] = batch.c.kept
    if kind in _IN_MOST_BATCHES:
        # SQLite must read the newest batches in order. With an index on these columns, it would read and sort all rows.
        name, batch_kept = sa.func.coalesce(name, ""), sa.func.coalesce(batch_kept, "")
    found = (
        sa.select(batch.c.planned_at, batch.c.batch_id, batch_file.c.key, batch_file.c.path)
        .select_from(batch)
        .join(batch_file, (batch_file.c.batch_id == name) & (batch_file.c.kind == word(kind)))
        .where(batch_kept.in_(sorted(kept)), batch_file.c.path.is_not(None))
        .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc(), batch_file.c.key)
        .limit(limit)
    )
    if bus is not None:
        found = found.where(batch.c.bus == bus)
    if batch_kind is not None:
        found = found.where(batch.c.kind == batch_kind)
    same = (batch.c.batch_id == sa.bindparam("before_batch")) & (batch_file.c.key > sa.bindparam("before_key"))
    return found.where(sa.or_(OLDER, same)) if older else found


#: The recorded files of a batch, with their kinds.
PATHS = sa.select(batch_file.c.kind, batch_file.c.path).where(
    batch_file.c.batch_id == sa.bindparam("of_batch"), batch_file.c.path.is_not(None)
)


#: The files of some kinds of the batches that were at work in a period, in order of batch and key.
FILES_AT_WORK = (
    sa.select(batch_file.c.batch_id, batch_file.c.kind, batch_file.c.key, batch_file.c.path, batch_file.c.rows)
    .join(batch, batch.c.batch_id == batch_file.c.batch_id)
    .where(AT_WORK, batch_file.c.kind.in_(sa.bindparam("kinds", expanding=True)))
    .order_by(batch_file.c.batch_id, batch_file.c.kind, batch_file.c.key)
)


class Files(Aggregate):
    """Recorded files of batches."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._descriptions = Descriptions()

    def record(self, file: BatchFile, while_state: BatchState, settlement: str | None = None) -> bool:
        """Record a file that a stage has finished, if the batch is in `while_state`; return whether it was recorded.

        Returns False if the batch is in another state or another file has this key; in that case nothing uses the
        caller's file. `settlement` is the key of the first settlement, from which the file is derived. Raises
        SettledAgainError if the batch now has a different first settlement.
        """
        with self._writing() as connection:
            if not is_in_state(connection, file.batch_id, while_state):
                return False
            if settlement is not None:
                prove_settled_by(connection, file.batch_id, settlement)
            return record_file(connection, file)

    def list_for_batch(self, batch_id: str, kind: FileKind) -> list[BatchFile]:
        """Return the recorded files of a kind, in order of their keys."""
        rows = self._rows(FILES, {"of_batch": batch_id, "of_kind": kind})
        return self._descriptions.decode(batch_id, rows)

    def newest(
        self,
        kind: FileKind,
        what: Kept,
        limit: int,
        *,
        bus: str | None = None,
        batch_kind: BatchKind | None = None,
        behind: FilePosition | None = None,
    ) -> list[FilePosition]:
        """Return at most `limit` files of a kind from batches that still have `what`, newest batch first.

        If `bus` or `batch_kind` is set, only files of matching batches are returned; if `behind` is set, only files
        that follow it.
        """
        kept = STEPS[: STEPS.index(what) + 1]
        query = select_newest_files(kind, kept, limit, bus=bus, batch_kind=batch_kind, older=behind is not None)
        values = {}
        if behind is not None:
            values = {"before_at": behind.planned_at, "before_batch": behind.batch_id, "before_key": behind.key}
        return [FilePosition(**row._mapping) for row in self._rows(query, values)]

    def list_at_work(self, since: datetime, until: datetime, kinds: Sequence[FileKind]) -> list[BatchFile]:
        """Return the files of batches that were at work in a period (`Batches.list_at_work`), without their details."""
        rows = self._rows(FILES_AT_WORK, {"since": since, "until": until, "kinds": list(kinds)})
        return [BatchFile(**row._mapping) for row in rows]

    def paths(self, batch_id: str) -> list[tuple[FileKind, str]]:
        """Return the recorded files of a batch, with their kinds."""
        return [(row.kind, row.path) for row in self._rows(PATHS, {"of_batch": batch_id})]


def prove_settled_by(connection: sa.Connection, batch_id: str, settlement: str) -> None:
    """Raise SettledAgainError if the first settlement of a batch has a different key. A batch without one is accepted.

    Results that are derived from a settlement are valid only while the batch still has that settlement. The caller has
    locked the batch's row, so the settlement stays until the transaction ends.
    """
    first = connection.execute(SETTLEMENTS, {"of_batch": batch_id}).scalar()
    if first not in (None, settlement):
        raise SettledAgainError(
            f"Batch {batch_id} was settled again by a repair at the same time, so the results of its old settlement "
            "are not used. Run this again."
        )


def record_file(connection: sa.Connection, file: BatchFile) -> bool:
    """Record a file; return False if its key is taken."""
    return connection.execute(insert_or_skip(batch_file), vars(file)).rowcount == 1


class Descriptions:
    """Caches the decoded files of the most recently requested batch only. It is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batch_id = ""
        self._files: dict[tuple[str, str], tuple[str, BatchFile]] = {}

    def decode(self, batch_id: str, rows: Sequence[sa.Row[Any]]) -> list[BatchFile]:
        """Return the files that rows of the `batch_file` table describe, in the order of the rows. Their `detail` is
        still text."""
        with self._lock:
            if batch_id != self._batch_id:
                self._batch_id, self._files = batch_id, {}
            return [self._decode_row(row) for row in rows]

    def _decode_row(self, row: sa.Row[Any]) -> BatchFile:
        name = (row.kind, row.key)
        known = self._files.get(name)
        # A file may have been deleted and another one recorded under its key.
        if known is None or known[0] != row.detail or (known[1].path, known[1].rows) != (row.path, row.rows):
            file = BatchFile(**dict(row._mapping) | {"detail": decode_detail(row.detail)})
            known = self._files[name] = (row.detail, file)
        return known[1]
