"""Appends the rows of a span to an Iceberg table exactly once.

The summary of the snapshot that an append commits has the name of the span. An append is committed only on top of a
snapshot whose ancestors were searched for the name: the catalog refuses it if another snapshot has become the newest
(pyiceberg's requirement `AssertRefSnapshotId`), and the newer snapshots are searched before it is tried again. Of two
attempts at the same time, only one is committed.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import In
from pyiceberg.io.pyarrow import _ConvertToIcebergWithoutIDs, _dataframe_to_data_files, visit_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import IcebergType
from pyiceberg.utils.properties import property_as_bool, property_as_int

from eventbridge.targets.arrow_rows import arrow_type
from eventbridge.targets.iceberg.fields import IcebergFields

#: The properties in the summary of a snapshot: the name of the span, and which of its deliveries have no row.
SPAN: Final = "eventbridge.span"
REJECTED: Final = "eventbridge.rejected"
#: How far clocks of hosts, and the planning of a batch and its first append, may be apart.
SKEW: Final = timedelta(hours=1)
#: The maximum number of delivery ids that are looked up in a table without the snapshots.
_MAX_LOOKED_UP: Final = 100


class SpanStored(ValidationException):
    """Another attempt has committed the span; pyiceberg removes the manifests of this one."""


class HistoryExpired(Exception):
    """Snapshots of the time since a span was planned have been removed, and one of them may have had its name."""


@dataclass(frozen=True)
class SpanName:
    """The name of a span, and the aware time at which its batch was planned."""

    name: str
    at: datetime

    def snapshot(self, metadata: TableMetadata, searched: int | None = None) -> Snapshot | None:
        """Return the snapshot that appended the span to the table's main branch, or None if there is none.

        `searched` is a snapshot whose ancestors are known not to have it. Raises HistoryExpired if snapshots have been
        removed that may have done so. All ancestors are searched, because reading their metadata takes far longer.
        """
        by_id = {each.snapshot_id: each for each in metadata.snapshots}
        found = metadata.snapshot_by_name(MAIN_BRANCH)
        while found is not None and found.snapshot_id != searched:
            if found.summary is not None and found.summary.get(SPAN) == self.name:
                return found
            if found.parent_snapshot_id == searched is not None:
                return None
            oldest, found = found, by_id.get(found.parent_snapshot_id or 0)
            # pyiceberg removes the id of a parent with the parent; the first snapshot of a table has the number 1
            if found is None and oldest.sequence_number != 1 and self._may_be_older(oldest):
                raise HistoryExpired
        return None

    def _may_be_older(self, snapshot: Snapshot) -> bool:
        return snapshot.timestamp_ms >= (self.at - SKEW).timestamp() * 1_000


def expire_snapshots(table: Table, now: datetime, every: timedelta) -> bool:
    """Expire the snapshots that are older than the table wants, if one is by more than `every`; return whether one was.

    Their data files remain, because newer snapshots have them.
    """
    properties = table.metadata.properties
    days = TableProperties.MAX_SNAPSHOT_AGE_MS_DEFAULT
    age = timedelta(milliseconds=property_as_int(properties, TableProperties.MAX_SNAPSHOT_AGE_MS, days) or days)
    newest = table.metadata.snapshot_by_name(MAIN_BRANCH)
    times = [each.timestamp_ms for each in table.metadata.snapshots if each != newest]
    if not times or min(times) >= (now - age - every).timestamp() * 1_000:
        return False
    try:
        table.maintenance.expire_snapshots().older_than(now - age).commit()
    except CommitFailedException:  # an append was faster; the next upkeep does it
        return False
    return True


def has_rows(table: Table, column: str, ids: Sequence[str]) -> bool:
    """Return whether a table has a row with one of these delivery ids; reads the column of all its files."""
    wanted = In(column, set(ids[:_MAX_LOOKED_UP]))  # type: ignore[call-arg, arg-type]  # untyped
    return bool(table.scan(wanted, selected_fields=(column,), limit=1).to_arrow().num_rows)


def write_files(table: Table, rows: pa.Table) -> list[DataFile]:
    """Write the data files of rows, which no snapshot has yet."""
    return list(_dataframe_to_data_files(table_metadata=table.metadata, df=rows, io=table.io))


def commit_append(
    table: Table, files: Iterable[DataFile], span: SpanName, rejected: Collection[int], count: int
) -> None:
    """Append data files to a table under the name of a span, of whose `count` deliveries some are `rejected`.

    The ancestors of the newest snapshot of `table` must not have the span. Raises SpanStored if another attempt was
    faster, CommitFailedException after too many conflicts; any other exception leaves open whether it is committed.
    """
    properties = {SPAN: span.name}
    if rejected:
        properties[REJECTED] = numbers_to_text(rejected, count)
    with _SpanTransaction(table, span) as transaction:
        update = transaction.update_snapshot(snapshot_properties=properties)
        merges = property_as_bool(table.metadata.properties, TableProperties.MANIFEST_MERGE_ENABLED, False)
        with update.merge_append() if merges else update.fast_append() as append:
            for file in files:
                append.append_data_file(file)


class _SpanTransaction(Transaction):
    """A transaction that is tried again after a conflict only if no snapshot has the span.

    pyiceberg tries an append again on top of the table as it is then, without looking at what was committed.
    """

    def __init__(self, table: Table, span: SpanName) -> None:
        super().__init__(table)
        self._span = span
        self._layout = _layout(table.metadata)
        newest = table.metadata.snapshot_by_name(MAIN_BRANCH)
        self._searched = None if newest is None else newest.snapshot_id

    @property
    def table_metadata(self) -> TableMetadata:
        """Return the metadata with the changes of the transaction, without copying them while there are none.

        pyiceberg reads it a dozen times in an append, and copies all snapshots each time.
        """
        return super().table_metadata if self._updates else self._table.metadata

    def _rebuild_snapshot_updates(self) -> None:
        metadata = self._table.metadata  # as the catalog has it now
        try:
            stored = self._span.snapshot(metadata, self._searched)
        except HistoryExpired:
            raise CommitFailedException("snapshots of the table were removed at the same time") from None
        if stored is not None:
            raise SpanStored
        if _layout(metadata) != self._layout:
            raise CommitFailedException("the schema or the partitioning of the table was changed at the same time")
        super()._rebuild_snapshot_updates()


if not hasattr(Transaction, "_rebuild_snapshot_updates"):  # or the rows of a span could be committed twice
    raise ImportError("EventBridge cannot use this version of pyiceberg. Install pyiceberg 0.12.")


def _layout(metadata: TableMetadata) -> tuple[int, int]:
    return metadata.current_schema_id, metadata.default_spec_id


def remove_files(table: Table, files: Iterable[DataFile]) -> None:
    """Remove data files that no snapshot has; those that cannot be removed remain as orphans."""
    for file in files:
        try:
            table.io.delete(file.file_path)
        except OSError:
            return


def create_table(catalog: Catalog, rule: IcebergFields) -> None:
    """Create the table of a rule, with optional columns. Raises TableAlreadyExistsError."""
    columns = {rule.delivery_id: "string"} | dict(rule.columns)
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])
    # each append writes the list of all snapshots to a new file
    properties = {TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true"}
    creation = catalog.create_table_transaction(rule.table, schema, properties=properties)
    with creation, creation.update_spec() as spec:
        for name in rule.partition_by:
            spec.add_identity(name)


def folder_columns(metadata: TableMetadata) -> dict[str, str]:
    """Return the columns whose values are in the names of the folders of data files, with the names of the partitions.

    Raises ModuleNotFoundError if partitions are by other than whole values, and the package for them is missing.
    """
    found = {}
    schema = metadata.schema()
    for each in metadata.spec().fields:
        if isinstance(each.transform, IdentityTransform):
            found[schema.find_column_name(each.source_id) or ""] = each.name
        elif not isinstance(each.transform, VoidTransform):
            import_module("pyiceberg_core")
    return found


def add_columns(table: Table, columns: Iterable[pa.Field]) -> None:
    """Add optional columns to a table; one that another process has added is left as it is."""
    with table.update_schema() as update:
        for each in columns:
            kind = visit_pyarrow(each.type, _ConvertToIcebergWithoutIDs())
            assert isinstance(kind, IcebergType), "it is the type of a column"
            update.add_column(each.name, kind)


def numbers_to_text(numbers: Collection[int], count: int) -> str:
    """Return the text of a set of numbers below `count`: bits, compressed, of at most 17 kB for 100,000 numbers."""
    bits = bytearray(-(-count // 8))
    for number in numbers:
        bits[number >> 3] |= 1 << (number & 7)
    return base64.b64encode(zlib.compress(bytes(bits), 9)).decode()


def numbers_of_text(text: str) -> set[int]:
    """Return the numbers that `numbers_to_text` made a text of."""
    bits = zlib.decompress(base64.b64decode(text))
    return {number for number in range(len(bits) * 8) if bits[number >> 3] >> (number & 7) & 1}
