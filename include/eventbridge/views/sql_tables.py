"""Defines the tables `events`, `deliveries`, `attempts`, `dead_letters` and `batches`, and finds their files.

`eventbridge sql` gives them to DuckDB, and `eventbridge.spark.tables` to Spark. A table of a time range has the rows
that its batches wrote in that range. A row's own time decides, but no row counts before its batch was planned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from eventbridge.model.batch import Batch, FileKind
from eventbridge.model.storage import Kept, is_kept
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import schemas
from eventbridge.store.columns import CODED

_TEXT = "VARCHAR"
_TIME = "TIMESTAMP WITH TIME ZONE"
_TRIES = (
    "STRUCT(number INTEGER, started_at TIMESTAMP WITH TIME ZONE, duration_ms DOUBLE, outcome VARCHAR, code INTEGER, "
    'error_class VARCHAR, "error" VARCHAR, response_head VARCHAR)[]'
)


@dataclass(frozen=True)
class Column:
    """A column of a table: its DuckDB type, and how DuckDB and Spark compute it from columns of the store's files.

    Without an expression, it is the column of the same name. `reads` names the columns of files that the expressions
    use, by default only the column of the same name.
    """

    name: str
    type: str
    about: str
    duckdb: str = ""
    spark: str = ""
    reads: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of files, and of the batch, that the expressions use."""
        return self.reads or (self.name,)


@dataclass(frozen=True)
class SqlTable:
    """A table: the files that it reads, the time of its rows, and its columns.

    The first column of `times` that is not null is a row's time. `routed` names the columns that come from the delivery
    files to which a settlement refers. Rows with equal `key` are one row, of which the newest file's counts.
    """

    name: str
    about: str
    kind: FileKind | None
    kept: Kept
    times: tuple[str, ...]
    schema: pa.Schema
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    routed: frozenset[str] = frozenset()

    def select(self, names: Collection[str]) -> tuple[Column, ...]:
        """Return the columns with the given names."""
        return tuple(each for each in self.columns if each.name in names)


def _id(name: str, about: str) -> Column:
    text = f"lower(hex({name}))"
    uuid = f"regexp_replace({text}, '(.{{8}})(.{{4}})(.{{4}})(.{{4}})(.{{12}})', '$1-$2-$3-$4-$5')"
    return Column(name, "UUID", about, f"hex({name})::UUID", uuid)


def _batch(about: str = "the batch that wrote the row") -> Column:
    return Column("batch_id", "UUID", about, "batch_id::UUID")


def _text_of(name: str, source: str, about: str) -> Column:
    return Column(name, _TEXT, about, f"try(decode({source}))", _spark_text(source), (source,))


def _json_of(name: str, source: str, about: str) -> Column:
    return Column(name, "JSON", about, f"try(decode({source})::JSON)", _spark_text(source), (source,))


def _spark_text(source: str) -> str:
    return f"try_validate_utf8(CAST({source} AS STRING))"


_POSITION = (
    Column("topic", _TEXT, "topic of the event"),
    Column("broker", _TEXT, "RocketMQ's broker; empty for any other bus"),
    Column("partition_id", "INTEGER", "partition of the event"),
    Column("offset", "BIGINT", 'offset of the event in its partition; write it in quotes: `"offset"`'),
)

EVENTS: Final = SqlTable(
    "events",
    "Messages that batches landed, whatever their status, one row for each message",
    "buffer",
    "archive",
    ("arrived_at",),
    schemas.BUFFER,
    (
        Column("bus", _TEXT, "bus of the event"),
        *_POSITION,
        Column("message_id", _TEXT, "id that the bus gave the message"),
        Column("event_id", _TEXT, "`id` of the event; null if the message is malformed"),
        Column("source", _TEXT, "`source` of the event"),
        Column("type", _TEXT, "`type` of the event"),
        Column("status", _TEXT, "`valid`, `duplicate`, `malformed` or `tombstone`"),
        Column("reason", _TEXT, "why the message is malformed"),
        Column("published_at", _TIME, "when the bus accepted the message"),
        Column("arrived_at", _TIME, "when the message was landed"),
        _json_of("event", "body", "the event as it was published; null if it is not JSON"),
        Column("runner", _TEXT, "runner of the batch that landed it"),
        _batch("the batch that landed it"),
    ),
    key=("bus", "topic", "broker", "partition_id", "offset"),
)

DELIVERIES: Final = SqlTable(
    "deliveries",
    "Deliveries that batches settled, one row for each delivery, with its last status in the range",
    "settlement",
    "all",
    ("settled_at",),
    schemas.SETTLEMENT,
    (
        _id("delivery_id", "id of the delivery, the same for every attempt"),
        Column("rule", _TEXT, "rule that matched the event"),
        Column("target", _TEXT, "target of the rule"),
        Column("rule_version", _TEXT, "version of the rule"),
        Column("bus", _TEXT, "bus of the event"),
        *_POSITION,
        Column("source", _TEXT, "`source` of the event"),
        Column("event_id", _TEXT, "`id` of the event"),
        Column("order_key", _TEXT, "ordering key; null unless the target is ordered"),
        Column("status", _TEXT, "`delivered`, `retry_scheduled`, `dead_lettered` or `unknown`"),
        Column("attempts", "INTEGER", "attempts so far, over all batches since it was first sent or redriven"),
        Column("reason", _TEXT, "why it is not delivered"),
        Column("detail", _TEXT, "the error in words"),
        Column("due_at", _TIME, "when it is tried again"),
        Column("hold_reason", _TEXT, "why it is on hold; null if it is not"),
        Column("not_before", _TIME, "when it could first be sent; null means on arrival"),
        Column("published_at", _TIME, "when the bus accepted the event"),
        Column("arrived_at", _TIME, "when the event was landed"),
        Column("settled_at", _TIME, "when the deciding response came; null without an attempt"),
        _text_of("request", "payload", "the request's body as transformed; null if it is not text"),
        _batch("the batch that settled it last"),
    ),
    key=("delivery_id",),
    routed=frozenset(
        (
            *("rule_version", "bus", "topic", "broker", "partition_id", "offset", "source", "event_id", "order_key"),
            "payload",
        )
    ),
)

ATTEMPTS: Final = SqlTable(
    "attempts",
    "Attempts to deliver, and deliveries that were given up without sending, one row for each",
    "outcome",
    "all",
    ("started_at",),
    schemas.OUTCOME,
    (
        _id("delivery_id", "id of the delivery"),
        Column("rule", _TEXT, "rule of the delivery"),
        Column("target", _TEXT, "target of the delivery"),
        Column("attempt", "INTEGER", "number of the attempt, from 1 over all batches; 0 if nothing was sent"),
        Column("sent", "BOOLEAN", "whether a request was sent"),
        Column("started_at", _TIME, "when it began"),
        Column("duration_ms", "DOUBLE", "how long it took, in milliseconds"),
        Column("outcome", _TEXT, "`delivered`, `retry_scheduled`, `dead_lettered` or `unknown`"),
        Column("due_at", _TIME, "when the delivery is tried again"),
        Column("reason", _TEXT, "why it is not delivered"),
        Column("code", "INTEGER", "HTTP status of the response"),
        Column("error_class", _TEXT, "class of the error"),
        Column("error", _TEXT, "the error in words"),
        _text_of("response_head", "response_head", "the first 20 KB of the response; null if it is not text"),
        _batch("the batch that made it"),
    ),
)

_ATTEMPT_FIELDS = ("number", "started_at", "duration_ms", "outcome", "code", "error_class", "error")
_DUCKDB_TRIES = (
    "list_transform(attempts, lambda a: struct_pack("
    + ", ".join(f"{name} := a.{name}" for name in _ATTEMPT_FIELDS)
    + ", response_head := try(decode(a.response_head))))"
)
_SPARK_TRIES = (
    "transform(attempts, a -> named_struct("
    + ", ".join(f"'{name}', a.{name}" for name in _ATTEMPT_FIELDS)
    + ", 'response_head', "
    + _spark_text("a.response_head")
    + "))"
)

DEAD_LETTERS: Final = SqlTable(
    "dead_letters",
    "Dead letters that batches wrote, one row for each, also those that were redriven later",
    "dead_letter",
    "dead_letters",
    ("last_attempt_at", "arrived_at"),
    schemas.DEAD_LETTER,
    (
        _id("delivery_id", "id of the delivery; null if the event never became one"),
        Column("rule", _TEXT, "rule of the delivery"),
        Column("target", _TEXT, "target of the delivery"),
        Column("rule_version", _TEXT, "version of the rule"),
        Column("bus", _TEXT, "bus of the event"),
        *_POSITION,
        Column("source", _TEXT, "`source` of the event"),
        Column("event_id", _TEXT, "`id` of the event"),
        Column("reason", _TEXT, "why it is not tried again"),
        Column("detail", _TEXT, "the error in words"),
        Column("arrived_at", _TIME, "when the event was landed"),
        Column("first_attempt_at", _TIME, "when the first attempt began"),
        Column("last_attempt_at", _TIME, "when the last attempt began"),
        Column(
            "dead_lettered_at",
            _TIME,
            "the last attempt or, without one, the landing",
            "coalesce(last_attempt_at, arrived_at)",
            "coalesce(last_attempt_at, arrived_at)",
            ("last_attempt_at", "arrived_at"),
        ),
        _json_of("event", "event", "the event as it was published; null if it is not JSON"),
        _text_of("request", "request", "the request's body as transformed; null if there was none"),
        Column("request_content_type", _TEXT, "content type of the request"),
        Column("request_headers", _TEXT, "further headers of the request, as JSON"),
        Column("attempts", _TRIES, "all attempts, the oldest first", _DUCKDB_TRIES, _SPARK_TRIES),
        _batch(),
    ),
)

#: The columns of `batches` come from the ledger.
_BATCH = pa.schema(
    [
        *((name, pa.string()) for name in ("batch_id", "kind", "runner", "bus", "state", "rule_set", "replay_id")),
        *((name, pa.timestamp("us", tz="UTC")) for name in ("planned_at", "deadline_at", "committed_at")),
        ("is_full", pa.bool_()),
        *((name, pa.int64()) for name in ("events", "deliveries", "dead_letters")),
    ]
)

BATCHES: Final = SqlTable(
    "batches",
    "Batches that were at work in the range, one row for each",
    None,
    "manifest",
    ("planned_at",),
    _BATCH,
    (
        _batch("id of the batch"),
        Column("kind", _TEXT, "`normal`, `retry`, `redrive` or `replay`"),
        Column("runner", _TEXT, "runner of the batch"),
        Column("bus", _TEXT, "bus of a batch that routes; empty for any other"),
        Column("state", _TEXT, "`open`, `planned`, `buffered`, `routed`, `settling` or `committed`"),
        Column("rule_set", _TEXT, "hash of the rule set that it uses"),
        Column("replay_id", _TEXT, "the replay or redrive that it belongs to; empty for any other"),
        Column("planned_at", _TIME, "when it was planned"),
        Column("deadline_at", _TIME, "when its sending ends"),
        Column("committed_at", _TIME, "when it was committed; null until then"),
        Column("is_full", "BOOLEAN", "whether the bus had more events than the batch may take"),
        Column("events", "BIGINT", "messages that it landed or, in a replay, took from the archive"),
        Column("deliveries", "BIGINT", "deliveries that it settled"),
        Column("dead_letters", "BIGINT", "dead letters that it wrote"),
    ),
)

#: The tables by name.
SQL_TABLES: Final[Mapping[str, SqlTable]] = {
    each.name: each for each in (EVENTS, DELIVERIES, ATTEMPTS, DEAD_LETTERS, BATCHES)
}

#: The column with the number of a row's file.
FILE_NUMBER: Final = "file_number"


def sources_of(wanted: Sequence[Column]) -> list[str]:
    """Return the columns of files and batches that the expressions of columns use."""
    return list(dict.fromkeys(name for each in wanted for name in each.sources))


def type_of(table: SqlTable, source: str) -> pa.DataType:
    """Return the type of a column that a table's expressions use: of a file, of the file's batch, or FILE_NUMBER."""
    if source == FILE_NUMBER:
        return pa.int32()
    if source in table.schema.names:
        return table.schema.field(source).type
    return schemas.DELIVERY.field(source).type if source in table.routed else CODED


def key_columns(table: SqlTable) -> Iterator[Column]:
    """Yield further columns of a table with several rows of one key, of which the one of the newest file counts."""
    for each in table.select(table.key):
        yield Column(f"key_{each.name}", each.type, "", each.duckdb or f'"{each.name}"', each.spark, each.sources)
    yield Column(FILE_NUMBER, "INTEGER", "")


@dataclass(frozen=True)
class TableFile:
    """A file with rows of a table, and its batch; `number` counts the files in order of their batches.

    `is_cut` is True if some of its rows may be outside the time range.
    """

    number: int
    path: str
    rows: int
    batch: Batch
    is_cut: bool


@dataclass(frozen=True)
class TableFiles:
    """The files of a table in a time range, oldest batch first.

    `removed` is when the newest batch was planned whose files retention has removed, and `unsettled` counts the batches
    without a settlement; both make a table incomplete. `is_repeated` is True if several rows may have the same key.
    """

    files: tuple[TableFile, ...]
    removed: datetime | None = None
    unsettled: int = 0
    is_repeated: bool = False


def find_files(runtime: Runtime, table: SqlTable, since: datetime, until: datetime) -> TableFiles:
    """Return the files of a table with rows from `since` (included) to `until` (excluded)."""
    batches = [each for each in _batches(runtime, since, until) if table is not EVENTS or each.kind == "normal"]
    assert table.kind is not None, "the ledger has the table of batches"
    paths = defaultdict(list)
    for file in runtime.ledger.files.list_at_work(since, until, [table.kind]):
        if file.path is not None and file.rows:
            paths[file.batch_id].append((file.path, file.rows))
    found: list[TableFile] = []
    removed, unsettled = None, 0
    for batch in batches:
        if not is_kept(batch.kept, table.kept):
            removed = batch.planned_at
            continue
        unsettled += table is DELIVERIES and batch.state in ("open", "routed")
        is_cut = batch.planned_at < since or batch.committed_at is None or batch.committed_at >= until
        found += [TableFile(len(found) + n, *each, batch, is_cut) for n, each in enumerate(paths[batch.batch_id])]
    return TableFiles(tuple(found), removed, unsettled, _is_repeated(table, found))


def _is_repeated(table: SqlTable, files: Sequence[TableFile]) -> bool:
    """Return whether several runners may have landed an event, or several batches settled a delivery."""
    if table is EVENTS:
        return len({(each.batch.bus, each.batch.runner) for each in files}) > len({each.batch.bus for each in files})
    return table is DELIVERIES and len(files) > 1


def notes_of(found: Mapping[str, TableFiles]) -> list[str]:
    """Return what tables lack, one sentence for each table that lacks something."""
    removed = [
        f"{name}: files of batches planned up to {each.removed:%Y-%m-%d %H:%M:%S} (UTC) are past their retention and "
        "were removed"
        for name, each in found.items()
        if each.removed is not None
    ]
    unsettled = sum(each.unsettled for each in found.values())
    at_work = "1 batch at work has" if unsettled == 1 else f"{unsettled:,} batches at work have"
    return [*removed, f"deliveries: {at_work} no status for their deliveries yet"] if unsettled else removed


def batch_rows(runtime: Runtime, since: datetime, until: datetime) -> list[dict[str, Any]]:
    """Return the rows of the table `batches`, oldest first."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for file in runtime.ledger.files.list_at_work(since, until, ["buffer", "settlement", "dead_letter"]):
        counts[file.batch_id][file.kind] += file.rows
    return [
        {name: getattr(batch, name) for name in _BATCH.names if hasattr(batch, name)}
        | {
            "events": counts[batch.batch_id]["buffer"],
            "deliveries": counts[batch.batch_id]["settlement"],
            "dead_letters": counts[batch.batch_id]["dead_letter"],
        }
        for batch in _batches(runtime, since, until)
    ]


def _batches(runtime: Runtime, since: datetime, until: datetime) -> Sequence[Batch]:
    return runtime.ledger.batches.list_at_work(since, until)
