"""Events that do to a worker what no event should: for tests of what becomes of their batch."""

from __future__ import annotations

import os
import time

from eventbridge import rowset
from eventbridge.rule import RuleSet
from eventbridge.stages.route_job import RouteJob, Slice, SliceResult
from eventbridge.stages.route_slice import route_slice
from eventbridge.store.parquet import read_rows
from eventbridge.store.protocol import Store

#: What the body of an event must contain to end its worker, to keep it for ever, or to raise in it.
DEADLY = b"poison: deadly"
ENDLESS = b"poison: endless"
RAISING = b"poison: raising"


def route_with_poison(store: Store, rule_set: RuleSet, job: RouteJob, piece: Slice) -> SliceResult:
    """Route a slice as `route_slice` does, unless it holds poison."""
    rows = read_rows(store, piece.file, rowset.encode(range(piece.row_from, piece.row_to)), columns=["body"])
    for body in rows["body"].to_pylist():
        if DEADLY in body:
            os._exit(1)
        while ENDLESS in body:
            time.sleep(1)
        if RAISING in body:
            raise RuntimeError("poisoned")
    return route_slice(store, rule_set, job, piece)
