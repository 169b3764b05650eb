"""Route in the process that asks: for tests, and to check Spark's answers against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventbridge.errors import EventBridgeError, SparkError
from eventbridge.rule import RuleSet
from eventbridge.stages.frozen_rules import frozen_rules
from eventbridge.stages.route_job import RouteJob, RouteSlice, Slice, SliceResult
from eventbridge.stages.route_slice import route_slice
from eventbridge.store.protocol import Store


class InProcessRouter:
    """A router without Spark: one slice after the other; `route` routes one."""

    def __init__(self, store: Store, route: RouteSlice = route_slice) -> None:
        self._store = store
        self._route = route

    def route_slices(self, job: RouteJob, slices: Sequence[Slice]) -> Iterator[SliceResult]:
        """Route each slice when its result is asked for; raises SparkError for whatever goes wrong inside, as Spark."""
        rules = frozen_rules(self._store, job.rule_set)
        for piece in slices:
            yield self._result(rules, job, piece)

    def _result(self, rules: RuleSet, job: RouteJob, piece: Slice) -> SliceResult:
        try:
            return self._route(self._store, rules, job, piece)
        except EventBridgeError:
            raise
        except Exception as error:
            raise SparkError(f"slice {piece.slice_id} failed: {type(error).__name__}: {error}") from error
