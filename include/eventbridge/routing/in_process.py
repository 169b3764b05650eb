"""Routes in the calling process: for tests, and for comparison with Spark's results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventbridge.errors import EventBridgeError, SparkError
from eventbridge.routing.job import RouteJob, RouteTask, SliceResult, Task
from eventbridge.routing.task import route_task
from eventbridge.rules import RuleSet
from eventbridge.store.protocol import Store
from eventbridge.store.rule_sets import frozen_rules


class InProcessRouter:
    """A router without Spark: one task after the other; `route` routes one."""

    def __init__(self, store: Store, route: RouteTask = route_task) -> None:
        self._store = store
        self._route = route

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        """Route each task when its result is requested; raises SparkError for any error, as Spark does."""
        rules = frozen_rules(self._store, job.rule_set)
        for task in tasks:
            yield self._result(rules, job, task)

    def _result(self, rules: RuleSet, job: RouteJob, task: Task) -> SliceResult:
        try:
            return self._route(self._store, rules, job, task)
        except EventBridgeError:
            raise
        except Exception as error:
            raise SparkError(f"{task.slice_id} failed: {type(error).__name__}: {error}") from error
