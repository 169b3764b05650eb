"""Provides the tables of `eventbridge sql` as DataFrames of a user's Spark session.

Python workers read the files from the store, as for all routing, so that a bucket needs no settings of Hadoop. The
ledger is read once, when the tables are opened; workers do not use it.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import UserError
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.time_range import time_range
from eventbridge.similar_names import suggest
from eventbridge.spark.frame import worker_connection
from eventbridge.store.open import open_store
from eventbridge.views.sql_files import Period, read_file
from eventbridge.views.sql_tables import (
    BATCHES,
    FILE_NUMBER,
    SQL_TABLES,
    Column,
    SqlTable,
    TableFile,
    TableFiles,
    batch_rows,
    find_files,
    key_columns,
    notes_of,
    sources_of,
    type_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

#: The number of rows that one Spark task reads, unless a file has more.
_ROWS_PER_TASK: Final = 100_000
_MAX_TASKS: Final = 2_000


def tables(
    spark: SparkSession | ConnectSession,
    since: str = "24h",
    until: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> EventTables:
    """Return the tables of `eventbridge sql` for a time range, as lazy DataFrames.

    `since` and `until` are RFC 3339 or ages such as `30d`; without `until`, the range ends now. `environ` has the
    `EVENTBRIDGE_*` variables of the installation; by default, they are those of this process. Raises UserError for an
    invalid time, and the errors of a ledger that cannot be read.
    """
    environment = os.environ if environ is None else environ
    runtime = open_runtime(Settings.from_mapping(environment), connections_from_environment(environment))
    try:
        period = time_range(runtime.clock(), since, until)
        found = {each.name: find_files(runtime, each, *period) for each in SQL_TABLES.values() if each.kind is not None}
        return EventTables(spark, runtime.store.uri, period, found, batch_rows(runtime, *period))
    finally:
        runtime.close()


@dataclass(frozen=True)
class EventTables:
    """The tables of a time range; each access makes a lazy DataFrame of all columns. `select` reads fewer columns."""

    spark: SparkSession | ConnectSession
    store_uri: str
    period: Period
    files: Mapping[str, TableFiles]
    batch_rows: Sequence[Mapping[str, Any]]

    @property
    def events(self) -> DataFrame:
        """The messages that batches landed."""
        return self.select("events")

    @property
    def deliveries(self) -> DataFrame:
        """The deliveries that batches settled, each with its last status."""
        return self.select("deliveries")

    @property
    def attempts(self) -> DataFrame:
        """The attempts to deliver."""
        return self.select("attempts")

    @property
    def dead_letters(self) -> DataFrame:
        """The dead letters that batches wrote."""
        return self.select("dead_letters")

    @property
    def batches(self) -> DataFrame:
        """The batches that were at work."""
        return self.select("batches")

    @property
    def notes(self) -> list[str]:
        """What the tables lack: files that retention has removed, and deliveries of batches at work."""
        return notes_of(self.files)

    def select(self, table: str, *columns: str) -> DataFrame:
        """Return a table with the named columns, or with all; only these columns are read from the store.

        Raises UserError for an unknown table or column.
        """
        if table not in SQL_TABLES:
            raise UserError(f"there is no table {table!r}. {suggest('Tables', table, SQL_TABLES)}")
        of = SQL_TABLES[table]
        known = [each.name for each in of.columns]
        for name in columns:
            if name not in known:
                raise UserError(f"the table {table} has no column {name!r}. {suggest('Columns', name, known)}")
        wanted = [each for name in columns for each in of.select([name])] or list(of.columns)
        return self._batches(wanted) if of is BATCHES else self._from_files(of, wanted)

    def _batches(self, wanted: Sequence[Column]) -> DataFrame:
        rows = [tuple(each[name] for name in BATCHES.schema.names) for each in self.batch_rows]
        frame = self.spark.createDataFrame(rows, _spark_schema(BATCHES.schema))
        return frame.selectExpr(*(f"`{each.name}`" for each in wanted))

    def _from_files(self, table: SqlTable, wanted: Sequence[Column]) -> DataFrame:
        found = self.files[table.name]
        hidden = list(key_columns(table)) if found.is_repeated else []
        names = sources_of([*wanted, *hidden])
        schema = pa.schema([(name, _sent_type(type_of(table, name))) for name in names])
        groups = _groups(found.files)
        numbers = self.spark.range(0, len(groups), 1, numPartitions=max(1, len(groups)))
        read = partial(read_groups, self.store_uri, table.name, schema, self.period, pickle.dumps(groups))
        frame = numbers.mapInArrow(read, _spark_schema(schema))
        shown = [f"{each.spark or chr(96) + each.name + chr(96)} AS `{each.name}`" for each in (*wanted, *hidden)]
        frame = frame.selectExpr(*shown)
        return _newest(frame, wanted, hidden) if hidden else frame


def read_groups(
    store_uri: str, table: str, schema: pa.Schema, period: Period, groups: bytes, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the groups of files with the given numbers; it runs in Spark's Python workers."""
    store = open_store(store_uri, worker_connection)
    files: list[list[TableFile]] = pickle.loads(groups)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for file in files[number]:
                for rows in read_file(store, SQL_TABLES[table], schema.names, file, period):
                    yield from rows.cast(schema).to_batches()


def _newest(frame: DataFrame, wanted: Sequence[Column], hidden: Sequence[Column]) -> DataFrame:
    """Return one row for each key, that of the newest file."""
    key = ", ".join(f"`{each.name}`" for each in hidden if each.name != FILE_NUMBER)
    rank = f"row_number() OVER (PARTITION BY {key} ORDER BY `{FILE_NUMBER}` DESC) AS `row_of_key`"
    ranked = frame.selectExpr("*", rank).where("`row_of_key` = 1")
    return ranked.selectExpr(*(f"`{each.name}`" for each in wanted))


def _groups(files: Sequence[TableFile]) -> list[list[TableFile]]:
    """Return the files in groups, each for one Spark task."""
    per_task = max(_ROWS_PER_TASK, sum(each.rows for each in files) // _MAX_TASKS)
    groups: list[list[TableFile]] = []
    rows = per_task
    for file in files:
        if rows >= per_task:
            groups.append([])
            rows = 0
        groups[-1].append(file)
        rows += file.rows
    return groups


def _sent_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column has on its way to Spark, which has no dictionaries and no bytes of fixed length."""
    if pa.types.is_dictionary(kind):
        return pa.string()
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else kind


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
