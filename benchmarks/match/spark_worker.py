"""The measured work of a Python worker of Spark: it reads the Parquet itself, and returns ids."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eventbridge.matching import Matcher, compile_rules
from eventbridge.matching.pattern import parse_pattern

#: Events at a time: what a batch of 20,000 long ones takes in memory that is fresh costs as much as to match them.
_BATCH = 4_000

MATCHED = "event long, rules array<int>"
"""The row number of an event in its file and the rules it matches; events that match none are left out."""


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what comes in."""
    yield from batches


def match_files(rules: Path, files: Sequence[Path], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Match the events of the files whose numbers come in; yields batches of MATCHED."""
    matcher = _matcher(rules)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from _matched(matcher, files[number])


def _matched(matcher: Matcher, file: Path) -> Iterator[pa.RecordBatch]:
    first = 0
    with pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(_BATCH, columns=["body"], use_threads=False):
            found = matcher.match(batch.column(0))
            events = np.flatnonzero(np.diff(found.offsets))
            offsets = np.append(found.offsets[events], found.offsets[-1]).astype(np.int32)
            rules = pa.ListArray.from_arrays(pa.array(offsets), pa.array(found.rules))
            yield pa.RecordBatch.from_arrays([pa.array(events + first), rules], ["event", "rules"])
            first += len(batch)


@lru_cache(maxsize=8)
def _matcher(rules: Path) -> Matcher:
    matcher = compile_rules([parse_pattern(line) for line in rules.read_text(encoding="utf-8").splitlines()])
    # Spark's daemon collects garbage after every task: what lives long is not looked at again.
    gc.collect()
    gc.freeze()
    return matcher
