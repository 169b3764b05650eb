"""Route in the process that asks: for tests, and to check Spark's answers against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventbridge.stages.frozen_rules import frozen_rules
from eventbridge.stages.route_slice import RouteJob, Slice, SliceResult, route_slice
from eventbridge.store.protocol import Store


class InProcessRouter:
    """A router without Spark: one slice after the other."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def route_slices(self, job: RouteJob, slices: Sequence[Slice]) -> Iterator[SliceResult]:
        """Route each slice when its result is asked for."""
        rules = frozen_rules(self._store, job.rule_set)
        for piece in slices:
            yield route_slice(self._store, rules, job, piece)
