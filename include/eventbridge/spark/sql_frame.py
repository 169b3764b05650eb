"""The Spark job that evaluates a rule's expressions over some events: read in Python, evaluated by Spark SQL.

Spark reads no file itself: a Python worker reads the rows from the store, as it does for every other route.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from eventbridge.event.cloudevent import Event, parse_event
from eventbridge.event.json_document import Number
from eventbridge.model import rowset
from eventbridge.routing.job import RouteJob
from eventbridge.routing.sql_results import EventRow
from eventbridge.spark.frame import worker_connection
from eventbridge.spark.stand_ins import restore, stand_in
from eventbridge.store.open import open_store
from eventbridge.store.parquet import read_rows
from eventbridge.transform.sql.calls import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

#: CloudEvents' own attributes, each a column of text.
ATTRIBUTES: Final = tuple(name for name in COLUMNS if name not in ("extensions", "data", "data_base64"))

#: The event at a place in the list that was asked about.
_NUMBER, _DATA, _KEPT, _STAND_INS = "__number", "__data", "__kept", "__stand_ins"

_EVENTS = ", ".join(
    [
        f"{_NUMBER} long",
        *(f"{name} string" for name in ATTRIBUTES),
        f"extensions map<string, string>, data_base64 string, {_DATA} string, {_STAND_INS} string",
    ]
)
_ARROW = pa.schema(
    [
        pa.field(_NUMBER, pa.int64()),
        *(pa.field(name, pa.string()) for name in ATTRIBUTES),
        pa.field("extensions", pa.map_(pa.string(), pa.string())),
        pa.field("data_base64", pa.string()),
        pa.field(_DATA, pa.string()),
        pa.field(_STAND_INS, pa.string()),
    ]
)

#: Settings that expressions are evaluated under: the same results wherever Spark runs. Constants are computed where
#: events are, not by the planner, which nobody could interrupt. Spark replaces no ${name}
#: by what its environment or configuration holds.
CONFS: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConstantFolding",
}

_EVENTS_AT_ONCE = 500


def events_frame(spark: SparkSession | ConnectSession, job: RouteJob, places: Sequence[EventRow]) -> DataFrame:
    """Return the events at some places, one partition of them, with the columns that expressions may name."""
    one = spark.range(0, 1, 1, numPartitions=1)
    events = one.mapInArrow(partial(event_rows, job.store_uri, job.event_max_size, json.dumps(list(places))), _EVENTS)
    return events.selectExpr("*", f"parse_json({_DATA}) AS data")


def asked_frame(events: DataFrame, where: str | None, values: Mapping[str, str]) -> DataFrame:
    """Return, per event, whether `where` keeps it, and then the value of each expression by its column.

    Both are texts that `eventbridge.transform.sql` wrote, never a user's own.
    """
    kept = f"CASE WHEN (\n{where}\n) THEN true ELSE false END" if where is not None else "true"
    named = [f"CASE WHEN {_KEPT} THEN (\n{value}\n) END AS {column}" for column, value in values.items()]
    return events.selectExpr("*", f"{kept} AS {_KEPT}").selectExpr(_NUMBER, _KEPT, _STAND_INS, *named)


def text_columns(asked: DataFrame) -> list[str]:
    """Return how each value becomes text: a string as it is, anything else as a JSON object of one member.

    Asks Spark for the types: raises PySpark's AnalysisException for an expression that means nothing.
    """
    from pyspark.sql.types import CharType, NullType, StringType, VarcharType

    columns = []
    for each in asked.schema.fields[3:]:
        if isinstance(each.dataType, StringType | CharType | VarcharType):
            columns.append(each.name)
        elif isinstance(each.dataType, NullType):
            columns.append(f"CAST(NULL AS STRING) AS {each.name}")
        else:
            document = f"to_json(struct({each.name} AS v), map('ignoreNullFields', 'false'))"
            columns.append(f"CASE WHEN {each.name} IS NOT NULL THEN {document} END AS {each.name}")
    return columns


def is_json(column: str) -> bool:
    """Say whether a column of `text_columns` holds JSON rather than text as it is."""
    return " " in column


def collected(asked: DataFrame, columns: Sequence[str]) -> list[list[Any]]:
    """Run the job; return [number, kept, text ...] for each event, JSON taken out of its object."""
    table = asked.selectExpr(_NUMBER, _KEPT, _STAND_INS, *columns).toArrow()
    keys = table[2].to_pylist()
    texts = [
        [_found(text, key, as_json=is_json(column)) for text, key in zip(values.to_pylist(), keys, strict=True)]
        for column, values in zip(columns, table.columns[3:], strict=True)
    ]
    return [list(row) for row in zip(table[0].to_pylist(), table[1].to_pylist(), *texts, strict=True)]


def _found(text: str | None, key: str | None, *, as_json: bool) -> str | None:
    """Return the text of a value, with what stood for other parts of its event put back."""
    if text is None:
        return None
    found = text[len('{"v":') : -1] if as_json else text
    return found if key is None else restore(found, key, is_json=as_json)


def event_rows(
    store_uri: str, max_bytes: int, places_text: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the events at some places as rows; runs in Spark's Python workers."""
    store = open_store(store_uri, worker_connection)
    places = [(file, row) for file, row in json.loads(places_text)]
    for _ in batches:
        for start in range(0, len(places), _EVENTS_AT_ONCE):
            some = places[start : start + _EVENTS_AT_ONCE]
            bodies: dict[EventRow, bytes] = {}
            for file in dict.fromkeys(file for file, _ in some):
                rows = sorted(row for other, row in some if other == file)
                found = read_rows(store, file, rowset.encode(rows), columns=["body"])["body"].to_pylist()
                bodies |= {(file, row): body for row, body in zip(rows, found, strict=True)}
            events = [parse_event(bodies[place], max_bytes=max_bytes) for place in some]
            rows_of_events = [_row(start + number, event) for number, event in enumerate(events)]
            yield pa.RecordBatch.from_pylist(rows_of_events, schema=_ARROW)


def _row(number: int, event: Event) -> dict[str, Any]:
    document = event.document
    known = {*ATTRIBUTES, "data", "data_base64"}
    data = stand_in(document["data"]) if "data" in document else None
    return {
        _NUMBER: number,
        **{name: document.get(name) for name in (*ATTRIBUTES, "data_base64")},
        "extensions": [
            (name, _text(value)) for name, value in document.items() if name not in known and value is not None
        ],
        _DATA: None if data is None else data.text,
        _STAND_INS: None if data is None else data.key,
    }


def _text(value: object) -> str:
    match value:
        case str():
            return value
        case Number():
            return value.text
        case _:
            return "true" if value is True else "false"
