"""Provides the compiled matcher for Spark DataFrames, for users' own tables and joins; route does not use it."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eventbridge.errors import UserError
from eventbridge.event.json_document import write_document
from eventbridge.matching import Matcher, compile_rules
from eventbridge.matching.pattern import Pattern, parse_pattern, write_pattern

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The columns that match_frame adds: the names of matching rules, and whether the event is not a strict JSON object.
MATCHED, MALFORMED = "matched", "malformed"


def match_frame(
    frame: DataFrame, rules: Mapping[str, Pattern | Mapping[str, Any] | str], column: str = "event"
) -> DataFrame:
    """Return the frame with `matched array<string>`, the names of the rules that match, and `malformed boolean`.

    `rules` are patterns by name; `column` holds the events as JSON text (string or binary). Rules are compiled once per
    Python worker; rows stay in their partitions. Raises PatternError for an invalid pattern, and UserError if the frame
    lacks the column or already has one of the added columns.
    """
    from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

    if column not in frame.columns:
        raise UserError(
            f"The frame has no column {column!r}; it has {', '.join(frame.columns)}. Name the column with the events."
        )
    taken = sorted({MATCHED, MALFORMED} & set(frame.columns))
    if taken:
        raise UserError(f"The frame has columns named {', '.join(taken)} already. Rename them before matching.")
    patterns = {
        name: write_document(write_pattern(pattern if isinstance(pattern, Pattern) else parse_pattern(pattern)))
        for name, pattern in rules.items()
    }
    added = [
        StructField(MATCHED, ArrayType(StringType(), containsNull=False), nullable=False),
        StructField(MALFORMED, BooleanType(), nullable=False),
    ]
    schema = StructType([*frame.schema.fields, *added])
    return frame.mapInArrow(partial(match_batches, json.dumps(patterns), column), schema)


def match_batches(rules: str, column: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the two columns to every batch, in Spark's Python workers.

    `rules` is a JSON object with the patterns by name.
    """
    matcher, names = _compile(rules)
    for batch in batches:
        found = matcher.match(batch.column(column))
        malformed = [False] * batch.num_rows
        for row in found.malformed.tolist():
            malformed[row] = True
        matched = pa.ListArray.from_arrays(pa.array(found.offsets, pa.int32()), names.take(pa.array(found.rules)))
        kept = [(field.name, batch.column(index)) for index, field in enumerate(batch.schema)]
        columns = dict([*kept, (MATCHED, matched), (MALFORMED, pa.array(malformed, pa.bool_()))])
        yield pa.RecordBatch.from_pydict(columns)


@lru_cache(maxsize=8)  # workers live long, and every change of a rule creates another set
def _compile(rules: str) -> tuple[Matcher, pa.Array]:
    patterns = json.loads(rules)  # as JSON text, because parsed values would turn numbers into doubles
    matcher = compile_rules([parse_pattern(pattern) for pattern in patterns.values()])
    # Spark's worker collects garbage after every task, which should not scan permanent objects each time.
    gc.freeze()
    return matcher, pa.array(list(patterns), pa.string())
