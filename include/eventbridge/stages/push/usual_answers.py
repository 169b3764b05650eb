"""How long answers of a target usually take, as the pushes of the newest batches wrote it down."""

from __future__ import annotations

from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import StoreError
from eventbridge.stages.runtime.newest_files import newest_files
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.store.parquet import read_table

#: Files of the newest pushes that are read at most.
_MOST_FILES = 12


def longest_answer(work: Runtime, rule: str, target: str) -> float | None:
    """Return the seconds of the longest of its newest answers, None if nothing was sent to it in the newest files."""
    for file in islice(newest_files(work, "outcome", "all"), _MOST_FILES):
        longest = _longest(work, file.path, rule, target)
        if longest is not None:
            return longest
    return None


def _longest(work: Runtime, path: str, rule: str, target: str) -> float | None:
    try:
        table = read_table(work.store, path, ["rule", "target", "sent", "duration_ms"])
    except StoreError:  # past its retention, or away: others tell
        return None
    own = pc.and_(pc.equal(table["rule"], rule), pc.equal(table["target"], target))
    found: pa.Scalar = pc.max(table["duration_ms"].filter(pc.and_(own, table["sent"])))
    longest: float | None = found.as_py()
    return None if longest is None else longest / 1000
